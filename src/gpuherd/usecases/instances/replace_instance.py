"""Make a replacement, and end a lineage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.api_key import Limits
from gpuherd.domain.cloud.machine import RECLAIM_NOTICE, usual_notice, with_notice
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance import goal_rules, instance_event
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.launch_spec import LaunchSpec, OnFailure
from gpuherd.domain.instance.lineage import Chain, Heir, Why
from gpuherd.domain.instance.plan import time_to_ready
from gpuherd.domain.instance.quota import hourly_usd
from gpuherd.domain.instance.replacement import awaits_handover
from gpuherd.domain.money.budget import BudgetRules
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import Change, Instances
from gpuherd.ports.job_port import Jobs
from gpuherd.ports.replica_port import Flags
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.money.judge_budgets import BudgetCache
from gpuherd.usecases.service.make_jobs import JobFactory

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
            instance_event.REPLACING,
            _REASONS[why],
            {"replacedBy": heir.id, "link": heir.link, "why": why.value},
        )
        after = replace(old, chain=chain.with_heir(heir), settled=False)
        change = self.event_recorder.change(after, replacing, actor=actor)
        return replace(change, heir=self._of_heir(young, old, limits))

    def _of_heir(self, young: Instance, old: Instance, limits: Limits) -> Change:
        created = NewEvent(
            instance_event.CREATED,
            f"takes over from {old.id}",
            {"replaces": old.id},
            after=Status.CREATING.value,
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

    def _wish(self, old: Instance, why: Why, limits: Limits) -> LaunchSpec:
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


ACTOR = "succession"


@dataclass(frozen=True)
class EndLineage:
    """Adds to the end of one instance what becomes of the others."""

    instances: Instances
    event_recorder: EventRecorder
    clock: Clock
    ids: Ids
    jobs: Jobs
    job_factory: JobFactory

    async def __call__(self, before: Instance, change: Change) -> Change:
        """Return the change that ends an instance, with the ends that go along with it."""
        if before.chain is None or change.instance.goal is Goal.RUNNING or before.goal is Goal.DELETED:
            return change
        heir = await self._heir(before)
        if heir is not None:
            chain = before.chain.without_heir(None)
            ended = replace(change, instance=replace(change.instance, chain=chain))
            along = self.deleted(heir, "its predecessor is not wanted any more")
            return ended if along is None else replace(ended, also=(*ended.also, along))
        return await self._with_predecessor(before, change)

    async def of_one_that_goes(self, it: Instance) -> Change | None:
        """Return what a delete means for the one whose heir is being removed already, by nobody's request.

        It may have failed: then its predecessor would make the next one, which is not wanted any more.
        """
        if it.goal is not Goal.DELETED:
            return None
        change = await self._with_predecessor(it, Change(it))
        return change.also[0] if change.also else None

    async def wake(self, change: Change) -> None:
        """Let those who end along with another one hear of it at once."""
        if change.also:
            await self.jobs.wake_or_enqueue(
                [self.job_factory.reconcile_job(it.instance) for it in change.also]
            )

    def deleted(self, it: Instance, reason: str) -> Change | None:
        """Return the removal of an instance, without anybody's request; None if it goes already."""
        return self._gone(it, reason, goal_rules.delete)

    def _gone(
        self, it: Instance, reason: str, goal: Callable[[Instance, str, datetime], Instance]
    ) -> Change | None:
        now = self.clock.now()
        after = goal(it, self.ids.new("op_"), now)
        if after is it:
            return None
        after = replace(after, reason=f"{after.reason}: {reason}")
        if after.chain is not None and awaits_handover(after):
            after = replace(after, chain=after.chain.without_heir(None))
        cause = instance_event.Cause(instance_event.CauseCode.SUCCESSION, reason)
        new_event = NewEvent(
            instance_event.GOAL_EVENTS[after.status],
            after.reason,
            {},
            it.status.value,
            after.status.value,
            cause,
        )
        change = self.event_recorder.change(after, new_event, actor=ACTOR)
        put_aside = goal_rules.superseded(it, now)
        return change if put_aside is None else replace(change, operations=(put_aside, *change.operations))

    async def _heir(self, it: Instance) -> Instance | None:
        chain = it.chain
        if chain is None or chain.heir is None or not awaits_handover(it):
            return None
        return await self._found(chain.heir.id)

    async def _with_predecessor(self, before: Instance, change: Change) -> Change:
        """An heir that nobody could use yet is ended: nobody wants the next one, either."""
        chain = before.chain
        if chain is None or chain.replaces is None or before.ready_at is not None:
            return change
        old = await self._found(chain.replaces)
        if old is None or old.goal is not Goal.RUNNING or old.chain is None or old.chain.heir is None:
            return change
        if old.chain.heir.id != before.id:
            return change
        along = None
        if not old.usable and change.instance.goal is Goal.DELETED:
            along = self._gone(old, "its heir was deleted before it took over", goal_rules.delete)
        elif not old.usable and goal_rules.can_stop(old):
            along = self._gone(old, "its heir was stopped before it took over", goal_rules.stop)
        if along is None:
            # It can be used, or keeps its data; but nobody else is to take over from it.
            along = Change(replace(old, chain=replace(old.chain, gave_up=True), settled=False))
        return replace(change, also=(*change.also, along))

    async def _found(self, instance_id: str) -> Instance | None:
        try:
            return await self.instances.get(instance_id)
        except NotFound:
            return None


# The latest lengths in seconds. Two that are written at once may lose one, which is not worth a table.
NOTICE_LENGTHS = "reclaim_notices_s"


@dataclass(frozen=True)
class NoticeLengths:
    """Remembers how long notices were, for all machines."""

    flags: Flags
    # By what the cloud promises, or the operator has set.
    promised: timedelta = RECLAIM_NOTICE

    async def usual(self) -> timedelta:
        """Return how long after its notice a machine can be counted on."""
        return usual_notice(await self._known(), self.promised)

    async def note_loss(self, length: timedelta) -> None:
        """Remember that a machine was taken back so long after its notice."""
        await self._put(length)

    async def note_unharmed(self) -> None:
        """Remember a notice whose machine was given back before its loss: it would have come as promised.

        Else only the early ones would be seen of those that are replaced in time.
        """
        await self._put(self.promised)

    async def _known(self) -> Sequence[float]:
        known: Sequence[float] = json.loads(await self.flags.get(NOTICE_LENGTHS) or "[]")
        return known

    async def _put(self, length: timedelta) -> None:
        known = await self._known()
        after = with_notice(known, length)
        if after != known:
            await self.flags.put(NOTICE_LENGTHS, json.dumps([round(it) for it in after]))
