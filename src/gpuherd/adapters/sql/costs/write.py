"""Writes spans: with whose they are, with the sums by day of those that end, and with what an instance's came
to. All of it inside of the transaction of whoever has seen something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import NamedTuple

import sqlalchemy as sa

from gpuherd.adapters.sql.costs.rows import centre_row, span_of, span_row, subject_key, subject_row
from gpuherd.adapters.sql.engine.chunks import chunks
from gpuherd.adapters.sql.engine.columns import Doc, insert_into
from gpuherd.adapters.sql.mapping.instances import instance_of
from gpuherd.adapters.sql.postgres.notify import record_change
from gpuherd.adapters.sql.schema.cost_tables import (
    cost_centre,
    ledger_day,
    ledger_label,
    ledger_subject,
    meter,
)
from gpuherd.adapters.sql.schema.tables import instance
from gpuherd.domain.costs.meter.edges import REPLACED
from gpuherd.domain.costs.meter.of_instance import subject_of_former
from gpuherd.domain.costs.period import NO_SHARE, Share, days_of
from gpuherd.domain.costs.settled import settle
from gpuherd.domain.costs.span import CostSpan
from gpuherd.domain.costs.subject import CostSubject
from gpuherd.domain.instance.settled_cost import SettledCost

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
    """Return whose the spans are that end because the cloud has given the id of their machine to another.

    They stay with whoever had the machine then: nobody pays for what another one has used.
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
