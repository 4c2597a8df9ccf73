"""Judge the budgets: warn, block, and end what has run out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from gpuherd.contract.money_models import BudgetNotice
from gpuherd.domain.errors import LeadershipLost, StaleWrite
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance_event import ACCOUNT, Event
from gpuherd.domain.money.budget import (
    AtLimit,
    Budget,
    BudgetNews,
    BudgetRules,
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
from gpuherd.ports.job_port import Jobs
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.events.record_event import EventRecorder
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.views.money_view import cents, describe_scope

log = structlog.get_logger()


# So many are asked to be reconciled at a time; the rest come with the next review.
ENDED_AT_ONCE = 500


@dataclass
class ReviewBudgets:
    """Runs every few seconds, at the leader; `budgets` refuses what another one writes."""

    budgets: Budgets
    cache: BudgetCache
    jobs: Jobs
    job_factory: JobFactory
    budget_events: BudgetEvents
    rules: BudgetRules
    clock: Clock
    _clock_steps: ClockStepDetector = field(init=False)
    _stepped_at: datetime | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._clock_steps = ClockStepDetector(self.clock, counts_sleep=True)

    async def __call__(self) -> None:
        now = self.clock.now()
        if self._clock_steps.detect_step() > timedelta(0):
            self._stepped_at = now
        for budget in await self.cache.refresh():
            try:
                await self._review(budget, now)
            except LeadershipLost:
                return
            except StaleWrite:
                # Somebody has changed it meanwhile: the next look sees both.
                continue

    async def _review(self, budget: Budget, now: datetime) -> None:
        spending = await self.budgets.spending(budget, now)
        # guard: hours that the clock has skipped use no budget up
        if self._is_premature(spending):
            return
        found = review(budget, spending, self.rules, now)
        if found.budget != budget:
            told = self.budget_events.told(found.budget, spending, found.news, now)
            budget = await self.budgets.save(found.budget, told)
            for news in found.news:
                log.warning("budget.news", budget_id=budget.id, news=type(news).__name__)
        if budget.is_exhausted_at(now):
            await self._end_all(budget)

    def _is_premature(self, spending: Spending) -> bool:
        """Return True if the wall clock was set ahead and no list has cut the spans there yet: until then the
        hour that nobody has lived through looks as if it had cost money."""
        stepped_at = self._stepped_at
        return stepped_at is not None and (spending.seen_at is None or spending.seen_at < stepped_at)

    async def _end_all(self, budget: Budget) -> None:
        instances = await self.budgets.to_end(budget, ENDED_AT_ONCE)
        if not instances:
            return
        # The jobs of this process must know before they begin.
        await self.cache.refresh()
        await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(it) for it in instances])


_CONSEQUENCES = {
    AtLimit.WARN: "nothing is stopped",
    AtLimit.BLOCK: "nothing new is accepted",
    AtLimit.STOP: "what is in it is stopped",
    AtLimit.DELETE: "what is in it is deleted",
}


@dataclass(frozen=True)
class BudgetEvents:
    """Puts news of budgets into words, for the transaction in which they become true."""

    event_recorder: EventRecorder

    def told(
        self, budget: Budget, spending: Spending, news: Iterable[BudgetNews], now: datetime
    ) -> list[AccountEvent]:
        """Return the events that tell of a budget, with the webhooks that go with each."""
        return [
            AccountEvent(_event(budget, spending, it, now), self.event_recorder.account_outbox_entries)
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
    """Knows them as they were at the last refresh: at once after a change here, soon after one of another
    replica. What is accepted is judged by the store itself."""

    def __init__(self, budgets: Budgets):
        self._budgets = budgets
        self._known: tuple[Budget, ...] = ()

    def current(self) -> tuple[Budget, ...]:
        return self._known

    def binds(self, owner: str, labels: Mapping[str, str]) -> bool:
        """Return True if some budget may refuse what this owner rents under these labels."""
        return any(it.is_binding and it.scope.includes(owner, labels) for it in self._known)

    async def refresh(self) -> tuple[Budget, ...]:
        """Learn them anew; what was known stays known while the store is away."""
        self._known = await self._budgets.list_all()
        return self._known


RATIOS_TTL_S = 15.0


# Each name is a series of its own.
BUDGETS_SHOWN = 50


ALL = "all"


class ReadBudgetRatios:
    """Asks the store a few times a minute, however many scrape."""

    def __init__(self, budgets: Budgets, clock: Clock):
        self._budgets = budgets
        self._clock = clock
        self._ratios: Cache[str, Mapping[str, float]] = Cache(clock, RATIOS_TTL_S, 1, "budget_ratios")

    async def __call__(self) -> Mapping[str, float]:
        return await self._ratios.get_or_load(ALL, self._load)

    async def _load(self) -> Mapping[str, float]:
        now = self._clock.now()
        shown = (await self._budgets.list_all())[:BUDGETS_SHOWN]
        spent = {it.name: (await self._budgets.spending(it, now)).spent for it in shown}
        return {it.name: spent[it.name] / it.amount if it.amount else 1.0 for it in shown}
