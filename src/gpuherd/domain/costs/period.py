"""What a span costs within a period, and how it spreads over days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from gpuherd.domain.costs.amount import cost_nano, doubt_nano
from gpuherd.domain.costs.span import CostSpan, Edge

DAY = timedelta(days=1)
NOTHING = timedelta(0)


class Period(NamedTuple):
    """From one moment to another, the second one excluded."""

    begin: datetime
    end: datetime

    def goes_on_at(self, now: datetime) -> bool:
        """Tell whether what goes on now is a part of it; one that was asked for up to now ends now."""
        return self.begin <= now <= self.end

    def overlap(self, lo: datetime, hi: datetime) -> timedelta:
        """Return how much of the time from `lo` to `hi` lies in it."""
        return max(NOTHING, min(hi, self.end) - max(lo, self.begin))

    def doubt_of(self, edge: Edge) -> timedelta:
        """Return by how much what is counted in here may be wrong because of an edge."""
        inside = self.begin <= edge.lo and edge.hi <= self.end
        return edge.doubt if inside else self.overlap(edge.lo, edge.hi)


class Share(NamedTuple):
    """What a span costs within a period, in nano-dollars."""

    amount: int
    # By how much that may be wrong, either way.
    doubt: int
    # How much of it came after its end was wanted.
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

    One that goes on may have ended as soon as it was last seen (`seen_at`), or ceased to be sure.
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
    """Yield what each day has of a span that has ended; the amounts add up to the whole, to the last nano."""
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
