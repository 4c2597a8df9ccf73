"""Spreads spans that go on over days: many spans, many days, and most days the same for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import NamedTuple

from gpuherd.domain.costs.amount import cost_nano, doubt_nano
from gpuherd.domain.costs.period import DAY, Period, Share, cost_within, day_start
from gpuherd.domain.costs.span import CostKind, CostSpan


class DayShare(NamedTuple):
    """What one day has of spans of one kind, somebody's or nobody's."""

    day: date
    kind: CostKind
    bound: bool
    share: Share


def spread_open(
    spans: Iterable[tuple[CostSpan, bool]], period: Period, now: datetime, seen_at: datetime
) -> Iterator[DayShare]:
    """Yield what each day of a period has of spans that go on, each with whether it is somebody's."""
    period = Period(period.begin, min(period.end, now))
    rates: dict[tuple[datetime, CostKind, bool], int] = defaultdict(int)
    for span, bound in spans:
        # The days in which its begin may lie, one by one.
        begin = day_start(max(span.began.lo, period.begin))
        for day, part in _days(begin, min(period.end, span.began.hi), period):
            yield DayShare(day, span.kind, bound, cost_within(span, part, now, seen_at))
            begin = day_start(part.begin) + DAY
        # From then on it costs the same as all others, and may have ended since it was last seen.
        rates[begin, span.kind, bound] += span.rate.nano_usd
        sure = span.sure_until or seen_at
        for day, part in _days(max(begin, day_start(min(sure, now))), now, period):
            doubt = doubt_nano(span.rate.nano_usd, part.overlap(sure, now))
            yield DayShare(day, span.kind, bound, Share(0, doubt, 0))
    for (begin, kind, bound), rate in rates.items():
        for day, part in _days(begin, now, period):
            yield DayShare(day, kind, bound, Share(cost_nano(rate, part.end - part.begin), 0, 0))


def _days(begin: datetime, end: datetime, period: Period) -> Iterator[tuple[date, Period]]:
    """Yield the days from the one that begins then to the one that holds `end`, cut to the period."""
    while begin <= end:
        part = Period(max(begin, period.begin), min(begin + DAY, period.end))
        if part.begin < part.end:
            yield begin.date(), part
        begin += DAY
