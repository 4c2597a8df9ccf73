"""Review the budgets: tell what has to be told, and have ended what one that is used up does not hold.

Nothing is stopped here. What is in the scope is reconciled, and that changes the goal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.budgets.budget import Budget
from gpuherd.domain.budgets.review import review
from gpuherd.domain.budgets.spending import BudgetRules, Spending
from gpuherd.domain.errors import LeadershipLost, StaleWrite
from gpuherd.ports.costs import Budgets
from gpuherd.ports.jobs import Jobs
from gpuherd.usecases.budgets.cache import BudgetCache
from gpuherd.usecases.budgets.events import BudgetEvents
from gpuherd.usecases.clock_steps import ClockStepDetector
from gpuherd.usecases.jobs.kinds import JobFactory

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
        """Tell whether the wall clock was set ahead and no list has cut the spans there yet: until then the
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
