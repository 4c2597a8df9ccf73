"""End: change the goal of an instance whose time is over, as if a person had asked, and say why."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from gpuherd.clock import Clock, Ids
from gpuherd.contract.codec.values import iso
from gpuherd.domain.endings.ending import End, EndCause, Ending, WarnData, WarnLease
from gpuherd.domain.endings.terms import EndAction
from gpuherd.domain.instance import events
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lifecycle import goals
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.succession.end_lineage import EndLineage

log = structlog.get_logger()

# Ends that have an event of their own; of the others the new goal tells enough.
_END_EVENTS = {
    EndCause.LEASE: events.LEASE_ENDED,
    EndCause.SILENCE: events.SILENCE_ENDED,
    EndCause.IDLE: events.IDLE_ENDED,
}


@dataclass(frozen=True)
class EndInstance:
    """Carries out what the endings decide. It calls nobody: the goal that it writes down does the rest."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    clock: Clock
    ids: Ids
    end_lineage: EndLineage

    async def __call__(self, leased: LeasedInstance, decision: Ending) -> LeasedInstance:
        match decision:
            case WarnLease():
                return await self._warn_lease(leased, decision)
            case WarnData():
                return await self._warn_data(leased, decision)
            case End():
                return await self._end(leased, decision)

    async def _end(self, leased: LeasedInstance, end: End) -> LeasedInstance:
        it, now = leased.instance, self.clock.now()
        change_goal = goals.stop if end.action is EndAction.STOP else goals.delete
        after = change_goal(it, self.ids.new("op_"), now)
        # What was seen of this run says nothing about the next one.
        after = replace(
            _with_lease_ended(after, end), use_watch=None, reason=f"asked to {end.action}: {end.reason}"
        )
        cause = events.Cause(events.END_CAUSES[end.cause], end.reason)
        details = {"then": end.action.value}
        told = [] if end.cause not in _END_EVENTS else [NewEvent(_END_EVENTS[end.cause], end.reason, details)]
        goal = NewEvent(
            events.GOAL_EVENTS[after.status], after.reason, {}, it.status.value, after.status.value, cause
        )
        change = self.event_recorder.change(after, *told, goal, actor=end.actor)
        if (put_aside := goals.superseded(it, now)) is not None:
            change = replace(change, operations=(put_aside, *change.operations))
        # Whoever is to take over ends with it.
        change = await self.end_lineage(it, change)
        log.info("instance.ended", instance_id=it.id, cause=end.actor, action=end.action.value)
        leased = await self.instance_leases.save(leased, change)
        await self.end_lineage.wake(change)
        return leased

    async def _warn_lease(self, leased: LeasedInstance, warning: WarnLease) -> LeasedInstance:
        it = leased.instance
        assert it.lease_term is not None, "only a lease that runs can end soon"
        warned = replace(it, lease_term=replace(it.lease_term, warned=True))
        details = {"endsAt": iso(warning.ends_at), "then": it.lease_term.then.value}
        new_event = NewEvent(events.LEASE_ENDING, f"its lease ends at {iso(warning.ends_at)}", details)
        return await self.instance_leases.save(leased, self.event_recorder.change(warned, new_event))

    async def _warn_data(self, leased: LeasedInstance, warning: WarnData) -> LeasedInstance:
        told = replace(leased.instance, data_expiry_told=True)
        words = f"the cloud may drop the data of this stopped machine at {iso(warning.expires_at)}"
        new_event = NewEvent(events.DATA_EXPIRING, words, {"expiresAt": iso(warning.expires_at)})
        return await self.instance_leases.save(leased, self.event_recorder.change(told, new_event))


def _with_lease_ended(it: Instance, end: End) -> Instance:
    if end.cause is not EndCause.LEASE or it.lease_term is None:
        return it
    return replace(it, lease_term=replace(it.lease_term, warned=True, ended=True))
