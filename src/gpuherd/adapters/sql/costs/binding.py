"""Gives spans to the instance that has their machine now, and states what nobody ever saw of a machine."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.costs.meters import read_seams
from gpuherd.adapters.sql.costs.rows import span_of
from gpuherd.adapters.sql.costs.write import (
    add_to_days,
    ensure_centres,
    ensure_subjects,
    refresh_subjects,
    settle_instances,
    write_spans,
)
from gpuherd.adapters.sql.mapping.instances import attempt_of
from gpuherd.adapters.sql.schema.cost_tables import ledger_subject, meter
from gpuherd.adapters.sql.schema.tables import attempt
from gpuherd.domain.clock_reading import ClockReading, by_present_clock
from gpuherd.domain.costs.meter.of_instance import subject_of_instance, unseen_spans
from gpuherd.domain.costs.period import NO_SHARE, Share, days_of
from gpuherd.domain.instance.instance import Instance


def claim_spans(connection: sa.Connection, it: Instance, now: datetime) -> None:
    """Let an instance have the spans of its machine that were opened before it had the machine."""
    nobodys = sa.and_(meter.c.cloud_id == it.cloud_id, meter.c.instance_id.is_(None))
    rows = connection.execute(sa.select(meter).where(nobodys).order_by(meter.c.id)).all()
    if not rows or it.cloud_id is None:
        return
    subject = subject_of_instance(it)
    centres = ensure_centres(connection, [subject])
    began = {subject.cloud_id: min(row.began_lo for row in rows)}
    numbers = ensure_subjects(connection, [subject], centres, began)
    (centre_id,), (subject_id,) = centres.values(), numbers.values()
    days: dict[tuple[date, int, str], Share] = defaultdict(lambda: NO_SHARE)
    for row in rows:
        if row.ended_lo is None:
            continue
        for day, share in days_of(span_of(row)):
            days[day, row.centre_id, row.kind] += Share(-share.amount, -share.doubt, 0)
            days[day, centre_id, row.kind] += Share(share.amount, share.doubt, 0)
    owned = {"instance_id": it.id, "subject_id": subject_id, "centre_id": centre_id}
    # guard: an instance gets the spans from before it had its machine
    connection.execute(sa.update(meter).where(nobodys).values(**owned))
    add_to_days(connection, days)
    before = sorted({row.subject_id for row in rows})
    connection.execute(
        sa.delete(ledger_subject).where(
            ledger_subject.c.id.in_(before), ~sa.exists().where(meter.c.subject_id == ledger_subject.c.id)
        )
    )
    refresh_subjects(connection, sorted({subject_id, *before}))
    settle_instances(connection, [it.id], now)


def note_unseen(connection: sa.Connection, it: Instance, reading: ClockReading | None, now: datetime) -> None:
    """Where no list has ever shown the machine of an instance that has ended: it has cost something."""
    cloud_id = it.last_cloud_id
    own = sa.and_(meter.c.cloud_id == cloud_id, meter.c.instance_id == it.id)
    known = sa.select(meter.c.id).where(own).limit(1)
    if cloud_id is None or connection.execute(known).first() is not None:
        return
    query = sa.select(attempt).where(attempt.c.instance_id == it.id, attempt.c.cloud_id == cloud_id)
    row = connection.execute(query).first()
    if row is None:
        return
    call, subject = attempt_of(row), subject_of_instance(it)
    sent_at = by_present_clock(call.sent_at, call.sent_reading, reading, read_seams(connection), now)
    write_spans(connection, unseen_spans(it, sent_at, now), {subject.cloud_id: subject}, now)
