"""End a lineage: what a stop or delete of one instance means for those that it takes over from or hands to.

Whoever stops or deletes an instance means all of it: an heir that has not taken over goes with it, in the
same transaction, and nobody makes another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from gpuherd.clock import Clock, Ids
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance import events
from gpuherd.domain.instance.instance import Goal, Instance
from gpuherd.domain.instance.lifecycle import goals
from gpuherd.domain.instance.lifecycle.handover import awaits_handover
from gpuherd.ports.instances import Change, Instances
from gpuherd.ports.jobs import Jobs
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.jobs.kinds import JobFactory

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
        return self._gone(it, reason, goals.delete)

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
        cause = events.Cause(events.CauseCode.SUCCESSION, reason)
        new_event = NewEvent(
            events.GOAL_EVENTS[after.status], after.reason, {}, it.status.value, after.status.value, cause
        )
        change = self.event_recorder.change(after, new_event, actor=ACTOR)
        put_aside = goals.superseded(it, now)
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
            along = self._gone(old, "its heir was deleted before it took over", goals.delete)
        elif not old.usable and goals.can_stop(old):
            along = self._gone(old, "its heir was stopped before it took over", goals.stop)
        if along is None:
            # It can be used, or keeps its data; but nobody else is to take over from it.
            along = Change(replace(old, chain=replace(old.chain, gave_up=True), settled=False))
        return replace(change, also=(*change.also, along))

    async def _found(self, instance_id: str) -> Instance | None:
        try:
            return await self.instances.get(instance_id)
        except NotFound:
            return None
