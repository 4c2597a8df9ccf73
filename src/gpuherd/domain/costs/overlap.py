"""Overlap: what an old machine costs beside the one that has taken its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gpuherd.domain.costs.period import Period, cost_within
from gpuherd.domain.costs.span import CostSpan


class LineageMember(NamedTuple):
    """An instance of a lineage, as far as its costs need it."""

    key: str
    lineage: str
    # When it was first usable; None if it never was.
    usable_at: datetime | None


def taken_over_at(members: Iterable[LineageMember]) -> dict[str, datetime]:
    """Return since when each member has a usable successor; those that have none are left out."""
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
    """Return what a span costs within a period from then on, in nano-dollars."""
    begin = max(period.begin, heir_at)
    return 0 if begin >= period.end else cost_within(span, Period(begin, period.end), now, now).amount
