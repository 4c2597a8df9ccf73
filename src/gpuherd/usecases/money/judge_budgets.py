"""Judge the budgets: warn, block, and end what has run out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial

import structlog

from gpuherd.contract.money_models import BudgetNotice
from gpuherd.domain.errors import LeadershipLost, StaleWrite
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance_event import ACCOUNT, Event
from gpuherd.domain.money.budget import (
    AtLimit,
    Budget,
    BudgetNews,
    Renewed,
    Spending,
    UsedUp,
    Warned,
    review,
)
from gpuherd.domain.money.usage_span import usd_of
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.costs_port import Budgets
from gpuherd.ports.event_port import AccountEvent
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.money_view import cents, describe_scope

log = structlog.get_logger()


# At most so many instances are reconciled at a time; the rest follow with the next review.
ENDED_AT_ONCE = 500


class BudgetClock:
    """Remembers when the wall clock was set ahead: until a list was made after that, the hours that the clock
    skipped look as if they had cost money."""

    def __init__(self, clock: Clock):
        self._clock_steps = ClockStepDetector(clock, counts_sleep=True)
        self._stepped_at: datetime | None = None

    def detect_step(self, now: datetime) -> None:
        """Remember `now` if the wall clock was set ahead since the last call."""
        if self._clock_steps.detect_step() > timedelta(0):
            self._stepped_at = now

    def has_skipped_hours(self, spending: Spending) -> bool:
        """Return True if no list has been metered since the clock was set ahead."""
        stepped_at = self._stepped_at
        return stepped_at is not None and (spending.seen_at is None or spending.seen_at < stepped_at)


async def judge_budgets(services: Services) -> None:
    """Judge all budgets. The leader does this every few seconds; the store refuses the writes of a former
    leader."""
    now = services.clock.now()
    services.budget_clock.detect_step(now)
    for budget in await services.budget_cache.refresh():
        try:
            await _judge_budget(services, budget, now)
        except LeadershipLost:
            return
        except StaleWrite:
            # A request has changed the budget meanwhile: the next review sees both changes.
            continue


async def _judge_budget(services: Services, budget: Budget, now: datetime) -> None:
    spending = await services.stores.reviewed_budgets.spending(budget, now)
    # guard: hours that the clock has skipped use no budget up
    if services.budget_clock.has_skipped_hours(spending):
        return
    found = review(budget, spending, services.rules.budget_rules, now)
    if found.budget != budget:
        told = budget_events(services, found.budget, spending, found.news, now)
        budget = await services.stores.reviewed_budgets.save(found.budget, told)
        for news in found.news:
            log.warning("budget.news", budget_id=budget.id, news=type(news).__name__)
    if budget.is_exhausted_at(now):
        await _end_all(services, budget)


async def _end_all(services: Services, budget: Budget) -> None:
    instances = await services.stores.reviewed_budgets.to_end(budget, ENDED_AT_ONCE)
    if not instances:
        return
    # The jobs of this process must know before they begin.
    await services.budget_cache.refresh()
    await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(it) for it in instances])


_CONSEQUENCES = {
    AtLimit.WARN: "nothing is stopped",
    AtLimit.BLOCK: "nothing new is accepted",
    AtLimit.STOP: "what is in it is stopped",
    AtLimit.DELETE: "what is in it is deleted",
}


def budget_events(
    services: Services, budget: Budget, spending: Spending, news: Iterable[BudgetNews], now: datetime
) -> list[AccountEvent]:
    """Return the events about a budget, each with its webhooks. They are saved with the budget."""
    return [
        AccountEvent(_event(budget, spending, it, now), services.event_recorder.account_outbox_entries)
        for it in news
    ]


def _event(budget: Budget, spending: Spending, news: BudgetNews, now: datetime) -> Event:
    spent = f"{cents(spending.spent)} of {cents(budget.amount)}"
    percent: int | None = None
    match news:
        case Warned(percent):
            type_, reason = (
                instance_event.BUDGET_WARNING,
                f"budget {budget.name!r} has spent {percent} %: {spent}",
            )
        case UsedUp():
            type_ = instance_event.BUDGET_EXHAUSTED
            reason = f"budget {budget.name!r} is used up ({spent}): {_CONSEQUENCES[budget.at_limit]}"
        case Renewed(why):
            type_, reason = instance_event.BUDGET_RESET, f"budget {budget.name!r} can be spent again: {why}"
    notice = BudgetNotice(
        budget_id=budget.id,
        name=budget.name,
        scope=describe_scope(budget.scope),
        amount=usd_of(budget.amount),
        period=budget.period.value,
        spent=usd_of(spending.spent),
        hourly_now=usd_of(spending.hourly),
        percent=percent,
        at_limit=budget.at_limit.value,
    )
    return Event(ACCOUNT, 0, type_, now, reason=reason, details=notice.model_dump(mode="json"))


class BudgetCache:
    """The budgets as of the last refresh. A change of this replica is known at once, a change of another
    replica soon. The store itself judges what is accepted."""

    def __init__(self, budgets: Budgets):
        self._budgets = budgets
        self._known: tuple[Budget, ...] = ()

    def current(self) -> tuple[Budget, ...]:
        return self._known

    def binds(self, owner: str, labels: Mapping[str, str]) -> bool:
        """Return True if a budget may refuse what this owner rents under these labels."""
        return any(it.is_binding and it.scope.includes(owner, labels) for it in self._known)

    async def refresh(self) -> tuple[Budget, ...]:
        """Read the budgets again. While the store is away, the known budgets stay known."""
        self._known = await self._budgets.list_all()
        return self._known


# Each name is a metrics series of its own.
BUDGETS_SHOWN = 50


async def read_budget_ratios(services: Services) -> Mapping[str, float]:
    """Return how much of each budget is spent, for the metrics. Scrapes share one reading."""
    return await services.money_caches.budget_ratios.get_or_load("all", partial(_load_ratios, services))


async def _load_ratios(services: Services) -> Mapping[str, float]:
    now = services.clock.now()
    shown = (await services.stores.budgets.list_all())[:BUDGETS_SHOWN]
    spent = {it.name: (await services.stores.budgets.spending(it, now)).spent for it in shown}
    return {it.name: spent[it.name] / it.amount if it.amount else 1.0 for it in shown}
