"""What is spent of a budget, what is promised besides, and what one more instance would need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuherd.domain.costs.amount import doubt_nano

# What has no lease costs until the period ends; where that is never, as long as the longest lease.
ENDLESS = timedelta(days=90)


@dataclass(frozen=True)
class BudgetRules:
    """How far ahead budgets look."""

    # What goes on is taken to cost money for so much longer: a stop takes its time.
    lead: timedelta = timedelta(seconds=120)
    # What is accepted and costs nothing yet counts as if it had run for so long.
    horizon: timedelta = timedelta(seconds=900)
    # Whether only those budgets judge that count whole leases: nothing new is asked for but a longer one.
    only_strict: bool = False


@dataclass(frozen=True)
class Spending:
    """What a scope has cost in a period so far, and costs an hour; in nano-dollars."""

    spent: int = 0
    hourly: int = 0
    # When the last complete list was begun: what it showed is in `spent`. None before the first.
    seen_at: datetime | None = None

    def ahead(self, time: timedelta) -> int:
        """Return what will be spent if everything goes on for so long."""
        return self.spent + doubt_nano(self.hourly, time)


@dataclass(frozen=True)
class Promised:
    """What instances in a scope will cost that is in no ledger yet."""

    # An hour, of what is accepted and not billed yet.
    unbilled_hourly: int = 0
    # All of it, until the end of each lease.
    leased: int = 0


@dataclass(frozen=True)
class Demand:
    """What an instance asks of the budgets: a new one, a start, or a longer lease."""

    owner: str
    labels: Mapping[str, str]
    # What it costs an hour at most; None where nobody knows.
    hourly: int | None
    # For how long at most; None where it has no end.
    lease: timedelta | None
