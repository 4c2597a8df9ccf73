"""Make an heir: an instance that takes over from another, with its wish, its terms and its owner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.api_key import Limits
from gpuherd.domain.budgets.spending import BudgetRules
from gpuherd.domain.instance import events
from gpuherd.domain.instance.estimate import time_to_ready
from gpuherd.domain.instance.instance import ID_PREFIX, Goal, Instance, OnFailure, Status, Wish
from gpuherd.domain.instance.quota import hourly_usd
from gpuherd.domain.succession.chain import Chain, Heir, Why
from gpuherd.ports.instances import Change, Instances
from gpuherd.usecases.budgets.cache import BudgetCache
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.jobs.kinds import JobFactory

# So long an heir waits for capacity: after that the next one does.
CAPACITY_WAIT_S = 7 * 24 * 3600
AUDIT_ACTION = "instance.replace"


@dataclass(frozen=True, kw_only=True)
class MakeHeir:
    """Makes the change that an heir is: of its predecessor and of itself, in one transaction."""

    instances: Instances
    event_recorder: EventRecorder
    job_factory: JobFactory
    clock: Clock
    ids: Ids
    max_wait: timedelta
    budgets: BudgetCache
    budget_rules: BudgetRules

    async def __call__(self, old: Instance, why: Why, limits: Limits, actor: str = "gpuherd") -> Change:
        """Return the change.

        Nothing is written if the link is taken (`StaleWrite`), or if the heir would go past the limits of its
        owner or a budget: in the limits it takes the place of the old one.
        """
        now, chain = self.clock.now(), old.chain or Chain(old.id)
        heir = Heir(self.ids.new(ID_PREFIX), chain.next_link, why, now)
        wish = self._wish(old, why, limits)
        boot = time_to_ready(await self.instances.ready_times_s(old.product_name))
        # guard: an heir has the end of its predecessor
        young = Instance(
            id=heir.id,
            name=old.name,
            wish=wish,
            goal=Goal.RUNNING,
            status=Status.CREATING,
            created_at=now,
            deadline=now + timedelta(seconds=wish.patience_s) + self.max_wait,
            estimated_ready_at=now + boot,
            owner=old.owner,
            correlation_id=old.correlation_id,
            expected_hourly_usd=hourly_usd(old),
            disk_hourly_usd=old.disk_hourly_usd,
            reason=f"takes over from {old.id}, looking for an offer",
            webhook_url=old.webhook_url,
            labels=old.labels,
            # What nobody could use goes before the next one is made.
            on_failure=OnFailure.DELETE,
            health_check=old.health_check,
            replacement=old.replacement,
            chain=chain.of_heir(old.id, heir),
            # The same end, and not a fresh one.
            terms=old.terms,
            lease_term=old.lease_term,
            used_at=old.used_at,
        )
        replacing = NewEvent(
            events.REPLACING, _REASONS[why], {"replacedBy": heir.id, "link": heir.link, "why": why.value}
        )
        after = replace(old, chain=chain.with_heir(heir), settled=False)
        change = self.event_recorder.change(after, replacing, actor=actor)
        return replace(change, heir=self._of_heir(young, old, limits))

    def _of_heir(self, young: Instance, old: Instance, limits: Limits) -> Change:
        created = NewEvent(
            events.CREATED, f"takes over from {old.id}", {"replaces": old.id}, after=Status.CREATING.value
        )
        change = self.event_recorder.change(young, created)
        # guard: budgets hold for an heir
        # guard: the limits hold for an heir
        return replace(
            change,
            jobs=(self.job_factory.reconcile_job(change.instance), *change.jobs),
            limits=limits if limits.on_rentals else None,
            judged_by=self.budget_rules if self.budgets.current() else None,
        )

    def _wish(self, old: Instance, why: Why, limits: Limits) -> Wish:
        wish = old.wish
        if why is not Why.ASKED and wish.capacity_wait_s < CAPACITY_WAIT_S:
            # Too dear or sold out: it waits in line, as long as anybody wants it.
            wish = replace(wish, capacity_wait_s=CAPACITY_WAIT_S)
        is_limited = limits.max_hourly_usd is not None or self.budgets.binds(old.owner, old.labels)
        if is_limited and wish.hourly_usd_max is None:
            # As for a create: what is counted is all that it may cost.
            wish = replace(wish, hourly_usd_max=hourly_usd(old))
        return wish


_REASONS = {
    Why.NOTICE: "the cloud takes this spot machine back; another instance takes over",
    Why.LOST: "the cloud took this spot machine back; another instance takes over",
    Why.ASKED: "asked to replace; another instance takes over",
}
