"""Write spans and days, and bind spans to instances."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from gpuherd.adapters.sql.database import chunks
from gpuherd.adapters.sql.ledger_tables import (
    cost_centre,
    ledger_day,
    ledger_label,
    ledger_subject,
    meter,
)
from gpuherd.adapters.sql.listen_notify import record_change
from gpuherd.adapters.sql.rental_tables import attempt, installation, instance
from gpuherd.adapters.sql.sql_types import (
    Doc,
    dumps,
    from_micros,
    insert_into,
)
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.row_codec import attempt_of
from gpuherd.domain.clock_reading import ClockReading, ClockSeam, by_present_clock
from gpuherd.domain.instance.instance import Instance, SettledCost
from gpuherd.domain.money.meter_reading import subject_of_former, subject_of_instance, unseen_spans
from gpuherd.domain.money.period import (
    NO_SHARE,
    Period,
    Share,
    cost_within,
    days_of,
)
from gpuherd.domain.money.span_rules import REPLACED
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    CostSubject,
    Edge,
    PriceSource,
    Rate,
    settle,
)


def span_of(row: Any) -> CostSpan:
    return CostSpan(
        cloud_id=row.cloud_id,
        kind=CostKind(row.kind),
        rate=Rate(row.rate_nusd_h, PriceSource(row.price_from)),
        began=Edge(row.began_lo, row.began_hi),
        began_by=row.began_by,
        ended=None if row.ended_lo is None else Edge(row.ended_lo, row.ended_hi),
        ended_by=row.ended_by,
        sure_until=row.sure_until,
        missed_at=row.missed_at,
        id=row.id,
    )


def span_row(it: CostSpan, subject: CostSubject) -> Doc:
    """Return all of a span but its number and the numbers of its subject; what it came to once it ends."""
    row: Doc = {
        "cloud_id": it.cloud_id,
        "kind": it.kind.value,
        "instance_id": subject.instance_id,
        "rate_nusd_h": it.rate.nano_usd,
        "price_from": it.rate.source.value,
        "began_lo": it.began.lo,
        "began_hi": it.began.hi,
        "began_by": it.began_by,
        "ended_lo": None if it.ended is None else it.ended.lo,
        "ended_hi": None if it.ended is None else it.ended.hi,
        "ended_by": it.ended_by,
        "sure_until": it.sure_until,
        "missed_at": it.missed_at,
        "amount_nusd": None,
        "doubt_nusd": None,
        "after_end_nusd": None,
    }
    if it.ended is not None:
        whole = cost_within(
            it,
            Period(it.began.lo, max(it.began.hi, it.ended.hi)),
            it.ended.hi,
            None,
            subject.end_wanted_at(it.kind),
        )
        row |= {
            "amount_nusd": whole.amount,
            "doubt_nusd": whole.doubt,
            "after_end_nusd": whole.after_end,
        }
    return row


def centre_row(it: CostSubject) -> Doc:
    row: Doc = {
        "owner": it.owner,
        "product_name": it.product_name,
        "region": it.region,
        "billing_mode": it.billing_mode,
    }
    return {**row, "key": dumps([*row.values(), sorted(it.labels.items())])}


def subject_key(it: CostSubject) -> str:
    return f"machine {it.cloud_id}" if it.instance_id is None else it.instance_id


def subject_row(it: CostSubject, centre_id: int) -> Doc:
    return {
        "key": subject_key(it),
        "cloud_id": it.cloud_id,
        "instance_id": it.instance_id,
        "lineage": it.lineage,
        "name": it.name,
        "centre_id": centre_id,
        "created_at": it.created_at,
        "usable_at": it.usable_at,
    }


def subject_of(row: Any, labels: Mapping[str, str]) -> CostSubject:
    return CostSubject(
        cloud_id=row.cloud_id,
        instance_id=row.subject_instance_id,
        owner=row.owner,
        created_at=row.created_at,
        lineage=row.lineage,
        name=row.name,
        product_name=row.product_name,
        region=row.region,
        billing_mode=row.billing_mode,
        labels=labels,
        usable_at=row.usable_at,
    )


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


_OPEN_SPAN = sa.insert(meter)


# Each names the columns that it sets by its parameters.
_CHANGE_SPAN = sa.update(meter).where(meter.c.id == sa.bindparam("its"))


_SETTLE = sa.update(instance).where(instance.c.id == sa.bindparam("its"))


class SpanWriter:
    """Writes spans part by part, for as many machines as a list may show.

    What many machines share is written at the end: in one order, so that no two transactions wait for each
    other.
    """

    def __init__(self, connection: sa.Connection):
        self._connection = connection
        self._days: dict[tuple[date, int, str], Share] = defaultdict(lambda: NO_SHARE)
        self._subject_ids: set[int] = set()
        self._instance_ids: set[str] = set()

    def put(self, spans: Sequence[CostSpan], subjects: Mapping[str, CostSubject]) -> None:
        """Write spans that were opened, in this order, changed or ended, with the subject of each machine."""
        if not spans:
            return
        used = [subjects[cloud_id] for cloud_id in dict.fromkeys(it.cloud_id for it in spans)]
        centres = ensure_centres(self._connection, used)
        numbers = ensure_subjects(self._connection, used, centres, _first_begins(spans))
        formers = _formers(self._connection, spans)
        opened, changed = [], []
        for it in spans:
            subject = subjects[it.cloud_id]
            centre_id = centres[centre_row(subject)["key"]]
            subject_id = numbers[subject_key(subject)]
            if (former := formers.get(it.id)) is not None:
                subject, subject_id, centre_id = former
            row = {**span_row(it, subject), "subject_id": subject_id, "centre_id": centre_id}
            if it.id:
                changed.append({**row, "its": it.id})
            else:
                opened.append(row)
            if it.ended is not None:
                for day, share in days_of(it, subject.end_wanted_at(it.kind)):
                    self._days[day, centre_id, it.kind.value] += share
        # What ends comes first, since of a kind only one may go on.
        if changed:
            self._connection.execute(_CHANGE_SPAN, changed)
        if opened:
            self._connection.execute(_OPEN_SPAN, opened)
        self._subject_ids.update(numbers.values(), (it.subject_id for it in formers.values()))
        owners = [*used, *(it.subject for it in formers.values())]
        self._instance_ids.update(it.instance_id for it in owners if it.instance_id)

    def finish(self, now: datetime) -> list[str]:
        """Write what the spans add to days, subjects and instances; return those whose cost has changed."""
        add_to_days(self._connection, self._days)
        refresh_subjects(self._connection, sorted(self._subject_ids))
        return settle_instances(self._connection, sorted(self._instance_ids), now)


def write_spans(
    connection: sa.Connection,
    spans: Sequence[CostSpan],
    subjects: Mapping[str, CostSubject],
    now: datetime,
) -> list[str]:
    """Write spans, with the subject of each machine; return the instances whose cost has changed by it."""
    writer = SpanWriter(connection)
    writer.put(spans, subjects)
    return writer.finish(now)


class _FormerSubject(NamedTuple):
    """Whose a span was before the id of its machine went to another, with the numbers that it has."""

    subject: CostSubject
    subject_id: int
    centre_id: int


def _formers(connection: sa.Connection, spans: Sequence[CostSpan]) -> dict[int, _FormerSubject]:
    """Return the former subjects of spans that end because the cloud reused the id of their machine.

    These spans stay with the instance that had the machine then: nobody pays for what another has used.
    """
    # guard: what a machine cost stays with its instance when another gets its id
    ended = {it.id: it for it in spans if it.id and it.ended_by == REPLACED}
    if not ended:
        return {}
    query = sa.select(meter.c.id, meter.c.instance_id, meter.c.subject_id, meter.c.centre_id)
    rows = [
        row for chunk in chunks(list(ended)) for row in connection.execute(query.where(meter.c.id.in_(chunk)))
    ]
    owners = sorted({row.instance_id for row in rows if row.instance_id is not None})
    known = {
        row.id: instance_of(row)
        for chunk in chunks(owners)
        for row in connection.execute(sa.select(instance).where(instance.c.id.in_(chunk)))
    }
    return {
        row.id: _FormerSubject(
            subject_of_former(ended[row.id], row.instance_id, known.get(row.instance_id)),
            row.subject_id,
            row.centre_id,
        )
        for row in rows
    }


def settle_instances(connection: sa.Connection, instance_ids: Sequence[str], now: datetime) -> list[str]:
    """Write down what the spans of these instances came to by now, and return those that are there."""
    settled: list[str] = []
    for chunk in chunks(sorted(set(instance_ids))):
        spans: dict[str, list[CostSpan]] = {it: [] for it in chunk}
        query = sa.select(meter).where(meter.c.instance_id.in_(chunk)).order_by(meter.c.id)
        for row in connection.execute(query):
            spans[row.instance_id].append(span_of(row))
        # In one order, so that no two transactions wait for each other.
        query = sa.select(instance.c.id).where(instance.c.id.in_(chunk)).order_by(instance.c.id)
        there = connection.scalars(query).all()
        if not there:
            continue
        connection.execute(_SETTLE, [_settled_row(it, settle(spans[it], now), now) for it in there])
        for instance_id in there:
            # Other replicas have kept its details, too.
            record_change(connection, instance_id)
        settled += there
    return settled


def _settled_row(instance_id: str, cost: SettledCost, now: datetime) -> Doc:
    return {
        "its": instance_id,
        "cost_nusd": cost.amount,
        "cost_doubt_nusd": cost.doubt,
        "cost_rate_nusd_h": cost.rate,
        "cost_at": now,
    }


def _first_begins(spans: Iterable[CostSpan]) -> dict[str, datetime]:
    begins: dict[str, datetime] = {}
    for it in spans:
        begins[it.cloud_id] = min(it.began.lo, begins.get(it.cloud_id, it.began.lo))
    return begins


def ensure_centres(connection: sa.Connection, subjects: Iterable[CostSubject]) -> dict[str, int]:
    """Return the number of the cost centre of each subject, by its key."""
    rows = {row["key"]: (row, it.labels) for it in subjects if (row := centre_row(it))}
    found = _numbers(connection, cost_centre, list(rows))
    missing = [key for key in rows if key not in found]
    if missing:
        insert = insert_into(connection, cost_centre).on_conflict_do_nothing()
        connection.execute(insert, [rows[key][0] for key in missing])
        found |= _numbers(connection, cost_centre, missing)
        labels = [
            {"centre_id": found[key], "key": name, "value": value}
            for key in missing
            for name, value in rows[key][1].items()
        ]
        if labels:
            connection.execute(insert_into(connection, ledger_label).on_conflict_do_nothing(), labels)
    return found


def ensure_subjects(
    connection: sa.Connection,
    subjects: Iterable[CostSubject],
    centres: Mapping[str, int],
    began: Mapping[str, datetime],
) -> dict[str, int]:
    """Return the number of each subject, by its key."""
    by_key = {subject_key(it): it for it in subjects}
    found = _numbers(connection, ledger_subject, list(by_key))
    missing = [it for key, it in by_key.items() if key not in found]
    if missing:
        insert = insert_into(connection, ledger_subject).on_conflict_do_nothing()
        rows = [
            {**subject_row(it, centres[centre_row(it)["key"]]), "first_at": began[it.cloud_id]}
            for it in missing
        ]
        connection.execute(insert, rows)
        found |= _numbers(connection, ledger_subject, [row["key"] for row in rows])
    usable = [{"its": found[key], "at": it.usable_at} for key, it in by_key.items() if it.usable_at]
    if usable:
        connection.execute(_SET_USABLE, usable)
    return found


_SET_USABLE = (
    sa.update(ledger_subject)
    .where(ledger_subject.c.id == sa.bindparam("its"), ledger_subject.c.usable_at.is_(None))
    .values(usable_at=sa.bindparam("at"))
)


def _numbers(connection: sa.Connection, table: sa.Table, keys: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for chunk in chunks(keys):
        query = sa.select(table.c.key, table.c.id).where(table.c.key.in_(chunk))
        found |= {row.key: row.id for row in connection.execute(query)}
    return found


def add_to_days(connection: sa.Connection, days: Mapping[tuple[date, int, str], Share]) -> None:
    """Add to the sums of days."""
    rows: list[Doc] = [
        {
            "day": day,
            "centre_id": centre_id,
            "kind": kind,
            "amount_nusd": share.amount,
            "doubt_nusd": share.doubt,
            "after_end_nusd": share.after_end,
        }
        # In one order, so that no two transactions wait for each other.
        for (day, centre_id, kind), share in sorted(days.items())
    ]
    if not rows:
        return
    insert = insert_into(connection, ledger_day)
    sums = {
        name: ledger_day.c[name] + insert.excluded[name]
        for name in ("amount_nusd", "doubt_nusd", "after_end_nusd")
    }
    connection.execute(
        insert.on_conflict_do_update(index_elements=["day", "centre_id", "kind"], set_=sums), rows
    )


def refresh_subjects(connection: sa.Connection, numbers: Sequence[int]) -> None:
    """Note when the last span of each subject ended, if none goes on."""
    its = meter.c.subject_id == ledger_subject.c.id
    goes_on = sa.exists().where(its, meter.c.ended_lo.is_(None))
    last = sa.select(sa.func.max(meter.c.ended_hi)).where(its).scalar_subquery()
    for chunk in chunks(numbers):
        connection.execute(
            sa.update(ledger_subject)
            .where(ledger_subject.c.id.in_(chunk))
            .values(last_at=sa.case((goes_on, None), else_=last))
        )


SEAMS_KEY = "clock_seams"


def read_seams(connection: sa.Connection) -> tuple[ClockSeam, ...]:
    """Return where the wall clock was set lately, oldest first."""
    query = sa.select(installation.c.value).where(installation.c.key == SEAMS_KEY)
    found = connection.execute(query).scalar()
    return tuple(ClockSeam(*map(from_micros, three)) for three in json.loads(found or "[]"))
