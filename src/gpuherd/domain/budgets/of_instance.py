"""What an instance asks of budgets, and how one that is used up ends it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from gpuherd.domain.budgets.budget import Budget
from gpuherd.domain.budgets.spending import Demand
from gpuherd.domain.costs.amount import nano_usd
from gpuherd.domain.endings.ending import End, EndCause
from gpuherd.domain.endings.terms import EndAction
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lifecycle.due import can_be_stopped, may_end
from gpuherd.domain.instance.quota import hourly_usd

NOTHING = timedelta(0)


def demand_of(it: Instance, now: datetime) -> Demand:
    """Return what an instance costs an hour at most, and for how long."""
    usd = hourly_usd(it)
    return Demand(it.owner, it.labels, None if usd is None else nano_usd(usd), lease_left(it, now))


def lease_left(it: Instance, now: datetime) -> timedelta | None:
    """Return for how long it may cost money by its lease; None if it has none."""
    ends_at, length_s = lease_columns(it)
    if ends_at is not None:
        return max(NOTHING, ends_at - now)
    return None if length_s is None else timedelta(seconds=length_s)


def lease_columns(it: Instance) -> tuple[datetime | None, int | None]:
    """Return when its lease ends, else how long it will be once it begins; both None if it has none."""
    term, lease = it.lease_term, it.terms.lease
    if term is not None:
        return term.ends_at, None
    return (None, None) if lease is None else (lease.until, lease.seconds)


def budget_end(it: Instance, budgets: Iterable[Budget], now: datetime) -> End | None:
    """Return how an instance ends because a budget that it is in is used up; None if none ends it."""
    ends = [end for budget in budgets if (end := _end_by(it, budget, now)) is not None]
    # The more thorough end holds, whichever budget is named first.
    return max(ends, key=lambda end: end.action is EndAction.DELETE, default=None)


def _end_by(it: Instance, budget: Budget, now: datetime) -> End | None:
    action = budget.end_action
    if action is None or not budget.is_exhausted_at(now) or not may_end(it):
        return None
    if not budget.scope.includes(it.owner, it.labels):
        return None
    if it.status is Status.EXITED or it.goal is Goal.STOPPED:
        # A stopped machine costs money only if its disk does, and only a delete ends that.
        if action is EndAction.STOP or (it.status is Status.EXITED and not it.disk_hourly_usd):
            return None
    elif not can_be_stopped(it):
        action = EndAction.DELETE
    return End(EndCause.BUDGET, action, f"budget {budget.name!r} is used up", budget.actor)
