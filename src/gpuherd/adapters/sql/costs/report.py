"""Sums over the ledger. Days that have ended were summed up when their spans did; only what goes on, and the
part of a day at the border of a period, is computed from spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.costs import clip
from gpuherd.adapters.sql.costs.rows import span_of
from gpuherd.adapters.sql.engine.columns import to_micros
from gpuherd.adapters.sql.mapping.instances import instance_of
from gpuherd.adapters.sql.schema.cost_tables import (
    IS_OPEN,
    cost_centre,
    ledger_day,
    ledger_label,
    ledger_subject,
    meter,
)
from gpuherd.adapters.sql.schema.tables import instance, list_record
from gpuherd.domain.costs.meter.of_instance import subject_of_instance
from gpuherd.domain.costs.open_days import spread_open
from gpuherd.domain.costs.period import DAY, NO_SHARE, Period, Share, cost_within, day_start
from gpuherd.domain.costs.span import CostKind
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Goal
from gpuherd.ports.costs import CostGroup, CostQuery, CostReport, GroupBy, Waste

BY_SPAN = frozenset({GroupBy.INSTANCE, GroupBy.LINEAGE})
"""What days do not know apart."""

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
    sums = Sums()
    whole, parts = split_days(query.period, now, by_span=query.by in BY_SPAN)
    if whole is not None:
        for row in connection.execute(_day_sums(query, whole)):
            sums.add(row)
    for part in parts:
        for row in connection.execute(_ended_sums(query, part)):
            sums.add(row)
    seen_at = last_look(connection) or now
    if query.by is GroupBy.DAY:
        _add_open_by_day(connection, query, now, seen_at, sums)
    else:
        for row in connection.execute(_open_sums(query, now, seen_at)):
            sums.add(row)
            sums.hourly[row.grouped] += int(row.hourly)
    after_end = sum(it.after_end for it in sums.groups.values())
    if query.by is GroupBy.DAY:
        counts = _instances_by_day(connection, query, now)
    else:
        counts = _instances(connection, query)
    values = [it for it in sums.groups if sums.groups[it] != NO_SHARE or sums.hourly[it]]
    groups = [
        CostGroup(it, sums.groups[it].amount, sums.groups[it].doubt, sums.hourly[it], counts.get(it, 0))
        for it in values
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
        ),
        groups=tuple(sorted(groups, key=_order(query.by))),
    )


def _order(by: GroupBy) -> Any:
    if by is GroupBy.DAY:
        return lambda it: it.value
    return lambda it: (-it.amount, it.value is None, it.value or "")


def split_days(
    period: Period, now: datetime, *, by_span: bool = False
) -> tuple[tuple[date, date] | None, list[Period]]:
    """Return the whole days of a period (the second excluded), and the parts of days at its borders."""
    if period.end <= period.begin:
        return None, []
    if by_span:
        return None, [period]
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


def _value(query: CostQuery) -> sa.ColumnElement[Any]:
    match query.by:
        case GroupBy.PRODUCT:
            column: sa.ColumnElement[Any] = cost_centre.c.product_name
        case GroupBy.REGION:
            column = cost_centre.c.region
        case GroupBy.LABEL:
            column = ledger_label.c.value
        case GroupBy.INSTANCE:
            return ledger_subject.c.instance_id
        case GroupBy.LINEAGE:
            return sa.func.coalesce(ledger_subject.c.lineage, ledger_subject.c.instance_id)
        case _:
            return cost_centre.c.owner
    # What is nobody's has no value, whatever it is.
    return sa.case((cost_centre.c.owner.is_(None), None), else_=column)


def _centres(query: CostQuery, source: sa.FromClause, centre_id: sa.ColumnElement[int]) -> sa.FromClause:
    joined = source.join(cost_centre, cost_centre.c.id == centre_id)
    if query.by is GroupBy.LABEL:
        its = sa.and_(ledger_label.c.centre_id == cost_centre.c.id, ledger_label.c.key == query.label)
        joined = joined.outerjoin(ledger_label, its)
    return joined


def _whose(query: CostQuery) -> list[sa.ColumnElement[bool]]:
    return [] if query.owner is None else [cost_centre.c.owner == query.owner]


def _day_sums(query: CostQuery, days: tuple[date, date]) -> sa.Select[Any]:
    value = sa.cast(ledger_day.c.day, sa.Text) if query.by is GroupBy.DAY else _value(query)
    bound = cost_centre.c.owner.is_not(None)
    return (
        sa.select(
            value.label("grouped"),
            ledger_day.c.kind,
            bound.label("bound"),
            sa.func.sum(ledger_day.c.amount_nusd).label("amount"),
            sa.func.sum(ledger_day.c.doubt_nusd).label("doubt"),
            sa.func.sum(ledger_day.c.after_end_nusd).label("after_end"),
        )
        .select_from(_centres(query, ledger_day, ledger_day.c.centre_id))
        .where(ledger_day.c.day >= days[0], ledger_day.c.day < days[1], *_whose(query))
        .group_by("grouped", ledger_day.c.kind, "bound")
    )


def _spans(query: CostQuery) -> sa.FromClause:
    joined = _centres(query, meter, meter.c.centre_id)
    if query.by in BY_SPAN:
        joined = joined.join(ledger_subject, ledger_subject.c.id == meter.c.subject_id)
    return joined


def _ended_sums(query: CostQuery, period: Period) -> sa.Select[Any]:
    day = sa.literal(period.begin.astimezone(UTC).date().isoformat())
    value = day if query.by is GroupBy.DAY else _value(query)
    bound = cost_centre.c.owner.is_not(None)
    # What came after the wanted end is known only of the whole span: it lies at its end.
    late = sa.case((meter.c.after_end_nusd < clip.ended_amount(period), meter.c.after_end_nusd))
    late_here = sa.func.coalesce(late, clip.ended_amount(period))
    ends_here = meter.c.ended_hi <= period.end
    return (
        sa.select(
            value.label("grouped"),
            meter.c.kind,
            bound.label("bound"),
            sa.func.sum(clip.ended_amount(period)).label("amount"),
            sa.func.sum(clip.ended_doubt(period)).label("doubt"),
            sa.func.sum(sa.case((ends_here, late_here), else_=0)).label("after_end"),
        )
        .select_from(_spans(query))
        .where(
            meter.c.ended_lo.is_not(None),
            meter.c.ended_hi > period.begin,
            meter.c.began_lo < period.end,
            *_whose(query),
        )
        .group_by("grouped", meter.c.kind, "bound")
    )


def _open_sums(query: CostQuery, now: datetime, seen_at: datetime) -> sa.Select[Any]:
    value, bound = _value(query), cost_centre.c.owner.is_not(None)
    return (
        sa.select(
            value.label("grouped"),
            meter.c.kind,
            bound.label("bound"),
            sa.func.sum(clip.open_amount(query.period, now)).label("amount"),
            sa.func.sum(clip.open_doubt(query.period, now, seen_at)).label("doubt"),
            sa.literal(0).label("after_end"),
            sa.func.sum(meter.c.rate_nusd_h).label("hourly"),
        )
        .select_from(_spans(query))
        .where(IS_OPEN, *_whose(query))
        .group_by("grouped", meter.c.kind, "bound")
    )


def _add_open_by_day(
    connection: sa.Connection, query: CostQuery, now: datetime, seen_at: datetime, sums: Sums
) -> None:
    statement = (
        sa.select(meter, cost_centre.c.owner).select_from(_spans(query)).where(IS_OPEN, *_whose(query))
    )
    found = [(span_of(row), row.owner is not None) for row in connection.execute(statement)]
    for day, kind, bound, share in spread_open(found, query.period, now, seen_at):
        sums.add_share(day.isoformat(), kind, bound, share)
    if found:
        today = now.astimezone(UTC).date().isoformat()
        sums.hourly[today] += sum(span.rate.nano_usd for span, _ in found)


def _subjects(query: CostQuery) -> sa.FromClause:
    return _centres(query, ledger_subject, ledger_subject.c.centre_id)


def _instances(connection: sa.Connection, query: CostQuery) -> dict[str | None, int]:
    """Count the instances that cost anything in the period, by value."""
    if query.by is GroupBy.INSTANCE:
        return _Ones()
    value = _value(query)
    counted: dict[str | None, int] = defaultdict(int)
    for when in (ledger_subject.c.last_at.is_(None), ledger_subject.c.last_at > query.period.begin):
        statement = (
            sa.select(value.label("grouped"), sa.func.count().label("instances"))
            .select_from(_subjects(query))
            .where(
                when,
                ledger_subject.c.first_at < query.period.end,
                ledger_subject.c.instance_id.is_not(None),
                *_whose(query),
            )
            .group_by("grouped")
        )
        for row in connection.execute(statement):
            counted[row.grouped] += row.instances
    return counted


class _Ones(dict[str | None, int]):
    """One for each instance, none for what is nobody's."""

    def get(self, key: str | None, default: Any = None) -> int:
        return 0 if key is None else 1


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
    begin = clip.number(to_micros(day_start(period.begin)))
    began = clip.greatest(clip.micros(subject.first_at), begin) // clip.number(_DAY_MICROS)
    ended = clip.micros(subject.last_at) // clip.number(_DAY_MICROS)
    source = ledger_subject if query.owner is None else _subjects(query)
    # Two questions, or no index would do for either.
    for when in (subject.last_at.is_(None), subject.last_at >= day_start(period.begin)):
        statement = (
            sa.select(began.label("began"), ended.label("ended"), sa.func.count().label("instances"))
            .select_from(source)
            .where(when, subject.first_at < period.end, subject.instance_id.is_not(None), *_whose(query))
            .group_by("began", "ended")
        )
        for row in connection.execute(statement):
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
    amount = sa.case(
        (meter.c.ended_lo.is_(None), clip.open_amount(query.period, now)),
        else_=clip.ended_amount(query.period),
    )
    statement = (
        sa.select(sa.func.coalesce(sa.func.sum(amount), 0))
        .select_from(meter.join(cost_centre, cost_centre.c.id == meter.c.centre_id))
        .where(meter.c.subject_id.in_(never_usable), *_whose(query))
    )
    return int(connection.execute(statement).scalar_one())


def _open_after_end(connection: sa.Connection, query: CostQuery, now: datetime) -> int:
    """Sum up what goes on although its end is wanted."""
    unwanted = instance.c.goal.in_([Goal.STOPPED.value, Goal.DELETED.value])
    joined = meter.join(instance, instance.c.id == meter.c.instance_id).join(
        cost_centre, cost_centre.c.id == meter.c.centre_id
    )
    where = sa.and_(IS_OPEN, unwanted, *_whose(query))
    spans = [span_of(row) for row in connection.execute(sa.select(meter).select_from(joined).where(where))]
    if not spans:
        return 0
    rows = connection.execute(sa.select(instance, meter.c.id.label("span")).select_from(joined).where(where))
    wanted = {row.span: subject_of_instance(instance_of(row)) for row in rows}
    return sum(
        cost_within(it, query.period, now, now, wanted[it.id].end_wanted_at(it.kind)).after_end
        for it in spans
        if it.id in wanted
    )


def metered_sums(
    connection: sa.Connection, period: Period, now: datetime
) -> Iterable[tuple[str, str | None, str, int, int, int, int]]:
    """Return what each machine has cost in a period, each kind apart."""
    seen_at = last_look(connection) or now
    goes_on = meter.c.ended_lo.is_(None)
    amount = sa.case((goes_on, clip.open_amount(period, now)), else_=clip.ended_amount(period))
    doubt = sa.case((goes_on, clip.open_doubt(period, now, seen_at)), else_=clip.ended_doubt(period))
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
            sa.or_(meter.c.ended_lo.is_(None), meter.c.ended_hi > period.begin),
            meter.c.began_lo < period.end,
        )
        .group_by(meter.c.cloud_id, meter.c.kind)
        .order_by(meter.c.cloud_id, meter.c.kind)
    )
    for row in connection.execute(statement):
        amounts = (int(row.amount), int(row.doubt), int(row.rate_min), int(row.rate_max))
        yield row.cloud_id, row.instance_id, row.kind, *amounts
