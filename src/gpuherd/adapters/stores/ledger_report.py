"""The report of costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import (
    UTC,
    date,
    datetime,
    timedelta,
)
from functools import cache
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import chunks
from gpuherd.adapters.sql.ledger_tables import (
    IS_OPEN,
    cost_centre,
    ledger_subject,
    meter,
)
from gpuherd.adapters.sql.rental_tables import instance, list_record
from gpuherd.adapters.sql.sql_types import to_micros
from gpuherd.adapters.stores import ledger_sql
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.ledger_sql import (
    BY_SPAN,
    centres,
    day_sums,
    ended_sums,
    hourly_sum,
    open_sums,
    parameters,
    spans,
    sums_by_span,
    value_of,
    whose,
    whose_costs,
)
from gpuherd.adapters.stores.usage_span_writes import span_of
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Goal
from gpuherd.domain.money.meter_reading import subject_of_instance
from gpuherd.domain.money.period import (
    DAY,
    NO_SHARE,
    Period,
    Share,
    cost_within,
    day_start,
    spread_open,
)
from gpuherd.domain.money.usage_span import CostKind
from gpuherd.ports.costs_port import (
    CostGroup,
    CostQuery,
    CostReport,
    GroupBy,
    Waste,
)

_SUBJECT = ledger_subject.c


def sum_overlap(connection: sa.Connection, query: CostQuery, now: datetime) -> int:
    """Sum up what predecessors have cost in the period since their heirs were usable."""
    values = parameters(query) | ledger_sql.moments(query.period, now, now)
    return int(connection.execute(overlap_sum(query.owner is not None), values).scalar_one())


@cache
def overlap_sum(is_owned: bool) -> sa.Select[Any]:
    """Sum up the same as `domain/costs/overlap.py`, where nothing but the sum leaves the database."""
    old = _with_heirs()
    end = sa.case((meter.c.ended_lo.is_(None), ledger_sql.NOW), else_=ledger_sql.ENDED)
    time = ledger_sql.overlap(ledger_sql.greatest(ledger_sql.BEGAN, old.c.heir_at), end)
    source = old.join(meter, meter.c.subject_id == old.c.id).join(
        cost_centre, cost_centre.c.id == meter.c.centre_id
    )
    return (
        sa.select(sa.func.coalesce(sa.func.sum(ledger_sql.cost(time)), 0))
        .select_from(source)
        .where(old.c.heir_at.is_not(None), *whose_costs(is_owned))
    )


def _with_heirs() -> sa.Subquery:
    """Return all members of lineages that could ever be used, and since when the next one can be."""
    heir = ledger_subject.alias("heir")
    # The first of a lineage had none when its first span was written.
    firsts = sa.select(heir.c.lineage).where(_is_heir(heir), _in_period(heir))
    members = sa.union_all(
        _members(_SUBJECT.lineage).where(_is_heir(ledger_subject), _in_period(ledger_subject)),
        _members(_SUBJECT.key).where(
            _SUBJECT.lineage.is_(None), _SUBJECT.key.in_(firsts), _in_period(ledger_subject)
        ),
    ).subquery("member")
    usable_next = sa.func.lead(members.c.usable).over(
        partition_by=members.c.lineage, order_by=(members.c.usable, members.c.id)
    )
    found = sa.select(members.c.id, usable_next.label("heir_at")).where(members.c.usable.is_not(None))
    return found.subquery("old")


def _is_heir(subject: sa.FromClause) -> sa.ColumnElement[bool]:
    # Unlike a comparison with null this uses the index wherever few have a lineage.
    return subject.c.lineage > sa.literal_column("''", sa.Text)


def _in_period(subject: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(
        ledger_sql.micros(subject.c.first_at) < ledger_sql.END,
        sa.or_(subject.c.last_at.is_(None), ledger_sql.micros(subject.c.last_at) > ledger_sql.BEGIN),
    )


def _members(lineage: sa.ColumnElement[str]) -> sa.Select[Any]:
    # The ledger learns it when a span ends; of what goes on, its instance knows.
    usable = sa.func.coalesce(ledger_sql.micros(_SUBJECT.usable_at), ledger_sql.micros(instance.c.ready_at))
    source = ledger_subject.outerjoin(instance, instance.c.id == _SUBJECT.instance_id)
    return sa.select(_SUBJECT.id, lineage.label("lineage"), usable.label("usable")).select_from(source)


_DAY_MICROS = DAY // timedelta(microseconds=1)


@dataclass
class Sums:
    """What was summed up so far."""

    groups: dict[str | None, Share] = field(default_factory=lambda: defaultdict(lambda: NO_SHARE))
    hourly: dict[str | None, int] = field(default_factory=lambda: defaultdict(int))
    kinds: dict[CostKind, int] = field(default_factory=lambda: dict.fromkeys(CostKind, 0))
    unbound: int = 0

    def add(self, row: Any) -> None:
        self.add_share(row.grouped, row.kind, row.bound, Share(row.amount, row.doubt, row.after_end))

    def add_share(self, value: Any, kind: str, bound: bool, share: Share) -> None:
        share = Share(*map(int, share))
        self.groups[value] += share
        self.kinds[CostKind(kind)] += share.amount
        # A volume has no instance, and is nobody's mistake for that.
        if not bound and kind != CostKind.VOLUME:
            self.unbound += share.amount


def make_report(connection: sa.Connection, query: CostQuery, now: datetime) -> CostReport:
    """Sum up a period."""
    seen_at = last_look(connection) or now
    if query.by in BY_SPAN:
        return _by_span(connection, query, now, seen_at)
    sums, is_owned = Sums(), query.owner is not None
    whole, parts = split_days(query.period, now)
    if whole is not None:
        days = {"first_day": whole[0], "last_day": whole[1]}
        for row in connection.execute(day_sums(query.by, is_owned), parameters(query) | days):
            sums.add(row)
    for part in parts:
        values = parameters(query) | ledger_sql.moments(part, now, seen_at)
        values["day"] = part.begin.astimezone(UTC).date().isoformat()
        for row in connection.execute(ended_sums(query.by, is_owned), values):
            sums.add(row)
    if query.by is GroupBy.DAY:
        _add_open_by_day(connection, query, now, seen_at, sums)
    else:
        values = parameters(query) | ledger_sql.moments(query.period, now, seen_at)
        for row in connection.execute(open_sums(query.by, is_owned), values):
            sums.add(row)
            sums.hourly[row.grouped] += int(row.hourly)
    after_end = sum(it.after_end for it in sums.groups.values())
    if query.by is GroupBy.DAY:
        counts = _instances_by_day(connection, query, now)
    else:
        counts = _instances(connection, query, now)
    goes_on = query.period.goes_on_at(now)
    named = [it for it in sums.groups if sums.groups[it] != NO_SHARE or (goes_on and sums.hourly[it])]
    groups = [
        CostGroup(it, sums.groups[it].amount, sums.groups[it].doubt, sums.hourly[it], counts.get(it, 0))
        for it in named
    ]
    return CostReport(
        amount=sum(it.amount for it in sums.groups.values()),
        doubt=sum(it.doubt for it in sums.groups.values()),
        hourly_now=sum(sums.hourly.values()),
        by_kind=sums.kinds,
        waste=Waste(
            unbound=sums.unbound,
            failed_boots=_failed_boots(connection, query, now),
            after_end=after_end + _open_after_end(connection, query, now),
            overlap=sum_overlap(connection, query, now),
        ),
        groups=tuple(sorted(groups, key=_order(query.by))),
    )


def _by_span(connection: sa.Connection, query: CostQuery, now: datetime, seen_at: datetime) -> CostReport:
    """Sum up by what days do not know apart: of very many groups only the dearest leave the database."""
    statement = sums_by_span(query.by, query.owner is not None)
    values = parameters(query) | ledger_sql.moments(query.period, now, seen_at)
    rows = connection.execute(statement, values).all()
    sums = rows[0] if rows else None
    names: dict[str | None, str] = {}
    if query.by is GroupBy.INSTANCE:
        counts: Mapping[str | None, int] = {it.grouped: 1 for it in rows if it.grouped is not None}
        names = _names(connection, [it.grouped for it in rows])
    else:
        counts = _instances(connection, query, now)
    groups = [
        CostGroup(
            it.grouped,
            int(it.amount),
            int(it.doubt),
            int(it.hourly),
            counts.get(it.grouped, 0),
            names.get(it.grouped, ""),
        )
        for it in rows
    ]
    late = _open_after_end(connection, query, now)
    return CostReport(
        amount=0 if sums is None else int(sums.all_amount),
        doubt=0 if sums is None else int(sums.all_doubt),
        hourly_now=int(connection.execute(hourly_sum(query.owner is not None), values).scalar_one()),
        by_kind={kind: 0 if sums is None else int(getattr(sums, f"all_{kind}")) for kind in CostKind},
        waste=Waste(
            unbound=0 if sums is None else int(sums.all_unbound),
            failed_boots=_failed_boots(connection, query, now),
            after_end=late if sums is None else int(sums.all_after_end) + late,
            overlap=sum_overlap(connection, query, now),
        ),
        groups=tuple(groups),
        groups_left_out=0 if sums is None else sums.groups - len(rows),
    )


def _names(connection: sa.Connection, instance_ids: Sequence[str | None]) -> dict[str | None, str]:
    named = [it for it in instance_ids if it is not None]
    found: dict[str | None, str] = {}
    for chunk in chunks(named):
        query = sa.select(ledger_subject.c.key, ledger_subject.c.name).where(ledger_subject.c.key.in_(chunk))
        found |= {row.key: row.name for row in connection.execute(query)}
    return found


def _order(by: GroupBy) -> Any:
    if by is GroupBy.DAY:
        return lambda it: it.value
    return lambda it: (-it.amount, it.value is None, it.value or "")


def split_days(period: Period, now: datetime) -> tuple[tuple[date, date] | None, list[Period]]:
    """Return the whole days of a period (the second excluded), and the parts of days at its borders."""
    if period.end <= period.begin:
        return None, []
    first = day_start(period.begin)
    if first != period.begin:
        first += DAY
    # Nothing has ended in the future, so of a period that goes on all of today is in it.
    last = day_start(period.end) if period.end < now else max(day_start(period.end), day_start(now) + DAY)
    if last < first:
        return None, [period]
    parts = [Period(period.begin, first), Period(last, period.end)]
    whole = (first.date(), last.date()) if first < last else None
    return whole, [it for it in parts if it.begin < it.end]


def last_look(connection: sa.Connection) -> datetime | None:
    """Return when the last complete list was begun: what was seen by then was there."""
    query = (
        sa.select(list_record.c.started_at)
        .where(list_record.c.complete)
        .order_by(list_record.c.id.desc())
        .limit(1)
    )
    return connection.execute(query).scalar()


def _add_open_by_day(
    connection: sa.Connection, query: CostQuery, now: datetime, seen_at: datetime, sums: Sums
) -> None:
    statement = (
        sa.select(meter, cost_centre.c.owner).select_from(spans(query.by)).where(IS_OPEN, *whose(query))
    )
    rows = connection.execute(statement, parameters(query))
    found = [(span_of(row), row.owner is not None) for row in rows]
    for day, kind, bound, share in spread_open(found, query.period, now, seen_at):
        sums.add_share(day.isoformat(), kind, bound, share)
    if found:
        today = now.astimezone(UTC).date().isoformat()
        sums.hourly[today] += sum(span.rate.nano_usd for span, _ in found)


def _subjects(query: CostQuery) -> sa.FromClause:
    return centres(query.by, ledger_subject, ledger_subject.c.centre_id)


def _instances(connection: sa.Connection, query: CostQuery, now: datetime) -> dict[str | None, int]:
    """Count the instances that cost anything in the period, by value."""
    value = value_of(query.by)
    counted: dict[str | None, int] = defaultdict(int)
    for there in instances_in(query.period, now):
        statement = (
            sa.select(value.label("grouped"), sa.func.count().label("instances"))
            .select_from(_subjects(query))
            .where(there, *whose(query))
            .group_by("grouped")
        )
        for row in connection.execute(statement, parameters(query)):
            counted[row.grouped] += row.instances
    return counted


def instances_in(period: Period, now: datetime) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions of instances that cost anything in a period: each is one question, or no index
    would do for either."""
    subject = ledger_subject.c
    began = sa.and_(subject.first_at < period.end, subject.instance_id.is_not(None))
    yield sa.and_(subject.last_at > period.begin, began)
    # What goes on has cost nothing yet of a time that has not come.
    if period.begin <= now:
        yield sa.and_(subject.last_at.is_(None), began)


def _instances_by_day(connection: sa.Connection, query: CostQuery, now: datetime) -> dict[str | None, int]:
    """Count the instances of each day: those that had begun by its end, without those that had ended."""
    first, last = query.period.begin.astimezone(UTC).date(), now.astimezone(UTC).date()
    begins: dict[date, int] = defaultdict(int)
    ends: dict[date, int] = defaultdict(int)
    for began, ended, instances in _lives(connection, query):
        begins[max(began, first)] += instances
        if ended is not None:
            ends[ended] += instances
    counted: dict[str | None, int] = {}
    alive, day = 0, first
    while day <= last:
        alive += begins[day]
        counted[day.isoformat()] = alive
        alive -= ends[day]
        day += DAY
    return counted


def _lives(connection: sa.Connection, query: CostQuery) -> Iterator[tuple[date, date | None, int]]:
    """Yield on which day instances began and ended, and how many, of those that cost anything then."""
    period, subject = query.period, ledger_subject.c
    begin = ledger_sql.number(to_micros(day_start(period.begin)))
    began = ledger_sql.greatest(ledger_sql.micros(subject.first_at), begin) // ledger_sql.number(_DAY_MICROS)
    ended = ledger_sql.micros(subject.last_at) // ledger_sql.number(_DAY_MICROS)
    source = ledger_subject if query.owner is None else _subjects(query)
    # Two questions, or no index would do for either.
    for when in (subject.last_at.is_(None), subject.last_at >= day_start(period.begin)):
        statement = (
            sa.select(began.label("began"), ended.label("ended"), sa.func.count().label("instances"))
            .select_from(source)
            .where(when, subject.first_at < period.end, subject.instance_id.is_not(None), *whose(query))
            .group_by("began", "ended")
        )
        for row in connection.execute(statement, parameters(query)):
            yield _day(row.began), None if row.ended is None else _day(row.ended), row.instances


def _day(number: int) -> date:
    return date(1970, 1, 1) + DAY * int(number)


def _failed_boots(connection: sa.Connection, query: CostQuery, now: datetime) -> int:
    """Sum up the instances that have ended, and were never usable."""
    ended = instance.c.status.in_([it.value for it in TERMINAL_STATUSES])
    # Asked for by itself: they are few, and a join would begin with all spans.
    never_usable = (
        sa.select(ledger_subject.c.id)
        .select_from(ledger_subject.outerjoin(instance, instance.c.id == ledger_subject.c.instance_id))
        .where(
            sa.text("ledger_subject.usable_at IS NULL AND ledger_subject.instance_id IS NOT NULL"),
            sa.or_(instance.c.id.is_(None), sa.and_(ended, instance.c.ready_at.is_(None))),
        )
    )
    amount = sa.case((meter.c.ended_lo.is_(None), ledger_sql.OPEN_AMOUNT), else_=ledger_sql.ENDED_AMOUNT)
    statement = (
        sa.select(sa.func.coalesce(sa.func.sum(amount), 0))
        .select_from(meter.join(cost_centre, cost_centre.c.id == meter.c.centre_id))
        .where(meter.c.subject_id.in_(never_usable), *whose(query))
    )
    values = parameters(query) | ledger_sql.moments(query.period, now, now)
    return int(connection.execute(statement, values).scalar_one())


def _open_after_end(connection: sa.Connection, query: CostQuery, now: datetime) -> int:
    """Sum up what goes on although its end is wanted."""
    unwanted = instance.c.goal.in_([Goal.STOPPED.value, Goal.DELETED.value])
    joined = meter.join(instance, instance.c.id == meter.c.instance_id).join(
        cost_centre, cost_centre.c.id == meter.c.centre_id
    )
    where = sa.and_(IS_OPEN, unwanted, *whose(query))
    values = parameters(query)
    rows = connection.execute(sa.select(meter).select_from(joined).where(where), values)
    unwanted_spans = [span_of(row) for row in rows]
    if not unwanted_spans:
        return 0
    owners = sa.select(instance, meter.c.id.label("span")).select_from(joined).where(where)
    wanted = {row.span: subject_of_instance(instance_of(row)) for row in connection.execute(owners, values)}
    return sum(
        cost_within(it, query.period, now, now, wanted[it.id].end_wanted_at(it.kind)).after_end
        for it in unwanted_spans
        if it.id in wanted
    )


def metered_sums(
    connection: sa.Connection, period: Period, now: datetime
) -> Iterable[tuple[str, str | None, str, int, int, int, int]]:
    """Return what each machine has cost in a period, each kind apart."""
    seen_at = last_look(connection) or now
    goes_on = meter.c.ended_lo.is_(None)
    amount = sa.case((goes_on, ledger_sql.OPEN_AMOUNT), else_=ledger_sql.ENDED_AMOUNT)
    doubt = sa.case((goes_on, ledger_sql.OPEN_DOUBT), else_=ledger_sql.ENDED_DOUBT)
    statement = (
        sa.select(
            meter.c.cloud_id,
            sa.func.max(meter.c.instance_id).label("instance_id"),
            meter.c.kind,
            sa.func.sum(amount).label("amount"),
            sa.func.sum(doubt).label("doubt"),
            sa.func.min(meter.c.rate_nusd_h).label("rate_min"),
            sa.func.max(meter.c.rate_nusd_h).label("rate_max"),
        )
        .where(
            sa.or_(goes_on, ledger_sql.micros(meter.c.ended_hi) > ledger_sql.BEGIN),
            ledger_sql.micros(meter.c.began_lo) < ledger_sql.END,
        )
        .group_by(meter.c.cloud_id, meter.c.kind)
        .order_by(meter.c.cloud_id, meter.c.kind)
    )
    for row in connection.execute(statement, ledger_sql.moments(period, now, seen_at)):
        amounts = (int(row.amount), int(row.doubt), int(row.rate_min), int(row.rate_max))
        yield row.cloud_id, row.instance_id, row.kind, *amounts
