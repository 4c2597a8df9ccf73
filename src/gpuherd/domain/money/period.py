"""Periods of reports and budgets, and how the cost of a span is divided into days."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import (
    UTC,
    date,
    datetime,
    time,
    timedelta,
)
from enum import StrEnum
from typing import NamedTuple

from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    Edge,
    cost_nano,
    doubt_nano,
)

DAY = timedelta(days=1)
NOTHING = timedelta(0)


class Period(NamedTuple):
    """From one moment to another, the second excluded."""

    begin: datetime
    end: datetime

    def goes_on_at(self, now: datetime) -> bool:
        """Return True if the period includes the time directly after now. A period that ends now does not."""
        return self.begin <= now <= self.end

    def overlap(self, lo: datetime, hi: datetime) -> timedelta:
        """Return how much of the time from `lo` to `hi` lies in the period."""
        return max(NOTHING, min(hi, self.end) - max(lo, self.begin))

    def doubt_of(self, edge: Edge) -> timedelta:
        """Return how wrong the time counted in this period may be because of an edge."""
        inside = self.begin <= edge.lo and edge.hi <= self.end
        return edge.doubt if inside else self.overlap(edge.lo, edge.hi)


class Share(NamedTuple):
    """What a span costs within a period, in nano-dollars."""

    amount: int
    # By how much it may be wrong, in either direction.
    doubt: int
    # The part after the requested end.
    after_end: int

    def __add__(self, other: object) -> Share:
        assert isinstance(other, Share)
        return Share(*(mine + its for mine, its in zip(self, other, strict=True)))


NO_SHARE = Share(0, 0, 0)


def day_start(moment: datetime) -> datetime:
    return datetime.combine(moment.astimezone(UTC).date(), time(), UTC)


def cost_within(
    span: CostSpan,
    period: Period,
    now: datetime,
    seen_at: datetime | None,
    end_wanted_at: datetime | None = None,
) -> Share:
    """Return what a span costs within a period.

    An open span may have ended, or become uncertain, directly after it was last seen (`seen_at`).
    """
    rate = span.rate.nano_usd
    end = now if span.ended is None else span.ended.mid
    doubt = period.doubt_of(span.began)
    if span.ended is not None:
        doubt += period.doubt_of(span.ended)
    else:
        sure = span.sure_until or seen_at or now
        doubt += period.overlap(max(span.began.mid, sure), now)
    after_end = NOTHING if end_wanted_at is None else period.overlap(max(end_wanted_at, span.began.mid), end)
    amount = cost_nano(rate, period.overlap(span.began.mid, end))
    return Share(amount, doubt_nano(rate, doubt), cost_nano(rate, after_end))


def days_of(span: CostSpan, end_wanted_at: datetime | None = None) -> Iterator[tuple[date, Share]]:
    """Yield the share of each day of an ended span. The shares add up to the exact total."""
    assert span.ended is not None
    first = min(span.began.lo, span.ended.lo)
    last = max(span.began.hi, span.ended.hi)
    begin, counted = day_start(first), 0
    while begin <= last:
        until = cost_within(span, Period(min(span.began.mid, begin), begin + DAY), last, None).amount
        share = cost_within(span, Period(begin, begin + DAY), last, None, end_wanted_at)
        share = share._replace(amount=until - counted)
        counted = until
        if share != NO_SHARE:
            yield begin.date(), share
        begin += DAY


class DayShare(NamedTuple):
    """The share of one day in spans of one kind, with or without an owner."""

    day: date
    kind: CostKind
    bound: bool
    share: Share


def spread_open(
    spans: Iterable[tuple[CostSpan, bool]], period: Period, now: datetime, seen_at: datetime
) -> Iterator[DayShare]:
    """Yield the share of each day of a period in open spans; each comes with whether it has an owner."""
    period = Period(period.begin, min(period.end, now))
    rates: dict[tuple[datetime, CostKind, bool], int] = defaultdict(int)
    for span, bound in spans:
        # The days in which it may have begun, one by one.
        begin = day_start(max(span.began.lo, period.begin))
        for day, part in _days(begin, min(period.end, span.began.hi), period):
            yield DayShare(day, span.kind, bound, cost_within(span, part, now, seen_at))
            begin = day_start(part.begin) + DAY
        # From then on it costs the same as all others. It may have ended since it was last seen.
        rates[begin, span.kind, bound] += span.rate.nano_usd
        sure = span.sure_until or seen_at
        for day, part in _days(max(begin, day_start(min(sure, now))), now, period):
            doubt = doubt_nano(span.rate.nano_usd, part.overlap(sure, now))
            yield DayShare(day, span.kind, bound, Share(0, doubt, 0))
    for (begin, kind, bound), rate in rates.items():
        for day, part in _days(begin, now, period):
            yield DayShare(day, kind, bound, Share(cost_nano(rate, part.end - part.begin), 0, 0))


def _days(begin: datetime, end: datetime, period: Period) -> Iterator[tuple[date, Period]]:
    """Yield the days from `begin` to the day of `end`, cut to the period."""
    while begin <= end:
        part = Period(max(begin, period.begin), min(begin + DAY, period.end))
        if part.begin < part.end:
            yield begin.date(), part
        begin += DAY


class LineageMember(NamedTuple):
    """An instance of a lineage, as far as its costs need it."""

    key: str
    lineage: str
    # When it was first usable; None if never.
    usable_at: datetime | None


def taken_over_at(members: Iterable[LineageMember]) -> dict[str, datetime]:
    """Return when each member got a usable replacement. Members without one are left out."""
    usable: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for it in members:
        if it.usable_at is not None:
            usable[it.lineage].append((it.usable_at, it.key))
    return {
        key: heir_at
        for its in usable.values()
        for (_, key), (heir_at, _) in zip(sorted(its), sorted(its)[1:], strict=False)
    }


def overlap_within(span: CostSpan, heir_at: datetime, period: Period, now: datetime) -> int:
    """Return the cost of a span within a period after the replacement was usable, in nano-dollars."""
    begin = max(period.begin, heir_at)
    return 0 if begin >= period.end else cost_within(span, Period(begin, period.end), now, now).amount


class BudgetPeriod(StrEnum):
    """The period of an amount."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


WEEK = timedelta(days=7)


# From before the first rental to the far future.
ALL_TIME = Period(datetime(2000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))


def period_at(period: BudgetPeriod, now: datetime) -> Period:
    """Return the period that contains a moment."""
    today = day_start(now)
    match period:
        case BudgetPeriod.DAY:
            return Period(today, today + DAY)
        case BudgetPeriod.WEEK:
            monday = today - today.weekday() * DAY
            return Period(monday, monday + WEEK)
        case BudgetPeriod.MONTH:
            first = today.replace(day=1)
            # The longest month has 31 days, so this lies in the next month.
            return Period(first, (first + 31 * DAY).replace(day=1))
        case BudgetPeriod.TOTAL:
            return ALL_TIME


def resets_at(period: BudgetPeriod, now: datetime) -> datetime | None:
    """Return when the amount is available again; None if never."""
    return None if period is BudgetPeriod.TOTAL else period_at(period, now).end
