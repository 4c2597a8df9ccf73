"""Forgets what was spent long ago, a little at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.schema.cost_tables import (
    bill,
    cost_centre,
    ledger_day,
    ledger_label,
    ledger_subject,
    meter,
)
from gpuherd.adapters.sql.schema.tables import instance

SPANS_AT_ONCE = 1000


def keep_what_was_usable(connection: sa.Connection, instance_ids: Sequence[str]) -> None:
    """Note when instances were first usable, before their records go."""
    ready_at = sa.select(instance.c.ready_at).where(instance.c.id == ledger_subject.c.instance_id)
    connection.execute(
        sa.update(ledger_subject)
        .where(ledger_subject.c.key.in_(instance_ids), ledger_subject.c.usable_at.is_(None))
        .values(usable_at=ready_at.scalar_subquery())
    )


def prune_some_spans(connection: sa.Connection, before: datetime) -> int:
    """Forget some spans that had ended before then; return how many."""
    old = sa.select(meter.c.id).where(meter.c.ended_hi < before).limit(SPANS_AT_ONCE)
    return connection.execute(sa.delete(meter).where(meter.c.id.in_(old))).rowcount


def prune_days(connection: sa.Connection, before: datetime) -> None:
    """Forget the sums and bills of days before then, and whom they were about."""
    connection.execute(sa.delete(ledger_day).where(ledger_day.c.day < before.date()))
    connection.execute(sa.delete(bill).where(bill.c.day < before.date()))
    spent = sa.exists().where(meter.c.subject_id == ledger_subject.c.id)
    gone = connection.execute(
        sa.delete(ledger_subject).where(ledger_subject.c.last_at < before, ~spent)
    ).rowcount
    if not gone:
        return
    used = [
        sa.exists().where(table.c.centre_id == cost_centre.c.id)
        for table in (ledger_subject, meter, ledger_day)
    ]
    connection.execute(sa.delete(cost_centre).where(~sa.or_(*used)))
    known = sa.exists().where(cost_centre.c.id == ledger_label.c.centre_id)
    connection.execute(sa.delete(ledger_label).where(~known))
