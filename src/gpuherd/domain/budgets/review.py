"""Review: what has to be told of a budget now, and whether it is used up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from gpuherd.domain.budgets.budget import Budget, BudgetState
from gpuherd.domain.budgets.spending import BudgetRules, Spending


@dataclass(frozen=True)
class Warned:
    """So many percent of the amount are spent."""

    percent: int


@dataclass(frozen=True)
class UsedUp:
    """The amount is spent, or will be before anything could be stopped."""


@dataclass(frozen=True)
class Renewed:
    """A new period has begun, or the amount was raised, after something was told."""

    reason: str


BudgetNews = Warned | UsedUp | Renewed
NEW_PERIOD = "a new period has begun"
AMOUNT_RAISED = "its amount was raised"


@dataclass(frozen=True)
class Review:
    """A budget as it is now, and what is new."""

    budget: Budget
    news: tuple[BudgetNews, ...] = ()


def review(budget: Budget, spending: Spending, rules: BudgetRules, now: datetime) -> Review:
    """Return what follows from what was spent in the period of `now`; each thing is told once a period."""
    news: list[BudgetNews] = []
    begin = budget.period_at(now).begin
    # A clock that was set back into an earlier period begins nothing anew.
    if begin > budget.period_start:
        if budget.told or budget.exhausted:
            news.append(Renewed(NEW_PERIOD))
        budget = replace(budget, period_start=begin, told=(), exhausted=False)
    if budget.exhausted:
        # There is nothing left to warn of.
        return Review(budget, tuple(news))
    reached = [it for it in sorted(budget.warn_percent) if _is_reached(budget, spending, it)]
    if untold := [it for it in reached if it not in budget.told]:
        news += map(Warned, untold)
        budget = replace(budget, told=tuple(sorted({*budget.told, *untold})))
    if is_used_up(budget, spending, rules):
        budget = replace(budget, exhausted=True)
        news.append(UsedUp())
    return Review(budget, tuple(news))


def is_used_up(budget: Budget, spending: Spending, rules: BudgetRules) -> bool:
    """Tell whether the amount is spent, or will be before anything could be stopped."""
    # guard: a budget ends things before its amount is passed
    return spending.ahead(rules.lead) >= budget.amount


def changed(before: Budget, after: Budget, spending: Spending, rules: BudgetRules, now: datetime) -> Review:
    """Return a budget that somebody has decided anew, with what is left of what was told of it."""
    if (after.scope, after.period) != (before.scope, before.period):
        after = replace(after, period_start=after.period_at(now).begin, told=(), exhausted=False)
    # What is not reached any more can be told again.
    told = tuple(it for it in after.told if it in after.warn_percent and _is_reached(after, spending, it))
    after = replace(after, told=told)
    raised = after.amount > before.amount
    # guard: nothing but a higher amount sets a budget free
    if after.exhausted and raised and not is_used_up(after, spending, rules):
        after = replace(after, exhausted=False)
    is_free_again = before.exhausted and not after.exhausted
    return Review(after, (Renewed(AMOUNT_RAISED),) if is_free_again and raised else ())


def state_of(budget: Budget, spending: Spending, rules: BudgetRules, now: datetime) -> BudgetState:
    """Return how far it is used up, whether or not that was told yet."""
    if budget.is_exhausted_at(now) or is_used_up(budget, spending, rules):
        return BudgetState.EXHAUSTED
    warned = any(_is_reached(budget, spending, it) for it in budget.warn_percent)
    return BudgetState.WARNED if warned else BudgetState.OK


def _is_reached(budget: Budget, spending: Spending, percent: int) -> bool:
    return spending.spent * 100 >= budget.amount * percent
