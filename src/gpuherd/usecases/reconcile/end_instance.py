"""End instances whose lease, budget or idleness says so, and record reclaim notices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from gpuherd.contract.wire_models import iso
from gpuherd.domain.cloud.machine import ReclaimNotice, read_notice
from gpuherd.domain.cloud.offer import OfferKey
from gpuherd.domain.instance import goal_rules, instance_event
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lease import EndAction
from gpuherd.domain.instance.scheduled_end import (
    End,
    EndCause,
    Ending,
    WarnData,
    WarnLease,
)
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import InstanceLeases, LeasedInstance
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.instances.replace_instance import NoticeLengths, end_lineage, wake_ended
from gpuherd.usecases.services import Services

log = structlog.get_logger()


# Ends that have an event of their own; of the others the new goal tells enough.
_END_EVENTS = {
    EndCause.LEASE: instance_event.LEASE_ENDED,
    EndCause.SILENCE: instance_event.SILENCE_ENDED,
    EndCause.IDLE: instance_event.IDLE_ENDED,
}


@dataclass(frozen=True)
class EndInstance:
    """Carries out what the endings decide. It calls nobody: the goal that it writes down does the rest."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    clock: Clock
    ids: Ids
    services: Services

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
        change_goal = goal_rules.stop if end.action is EndAction.STOP else goal_rules.delete
        after = change_goal(it, self.ids.new("op_"), now)
        # What was seen of this run says nothing about the next one.
        after = replace(
            _with_lease_ended(after, end), use_watch=None, reason=f"asked to {end.action}: {end.reason}"
        )
        cause = instance_event.Cause(instance_event.END_CAUSES[end.cause], end.reason)
        details = {"then": end.action.value}
        told = [] if end.cause not in _END_EVENTS else [NewEvent(_END_EVENTS[end.cause], end.reason, details)]
        goal = NewEvent(
            instance_event.GOAL_EVENTS[after.status],
            after.reason,
            {},
            it.status.value,
            after.status.value,
            cause,
        )
        change = self.event_recorder.change(after, *told, goal, actor=end.actor)
        if (put_aside := goal_rules.superseded(it, now)) is not None:
            change = replace(change, operations=(put_aside, *change.operations))
        # Whoever is to take over ends with it.
        change = await end_lineage(self.services, it, change)
        log.info("instance.ended", instance_id=it.id, cause=end.actor, action=end.action.value)
        leased = await self.instance_leases.save(leased, change)
        await wake_ended(self.services, change)
        return leased

    async def _warn_lease(self, leased: LeasedInstance, warning: WarnLease) -> LeasedInstance:
        it = leased.instance
        assert it.lease_term is not None, "only a lease that runs can end soon"
        warned = replace(it, lease_term=replace(it.lease_term, warned=True))
        details = {"endsAt": iso(warning.ends_at), "then": it.lease_term.then.value}
        new_event = NewEvent(
            instance_event.LEASE_ENDING, f"its lease ends at {iso(warning.ends_at)}", details
        )
        return await self.instance_leases.save(leased, self.event_recorder.change(warned, new_event))

    async def _warn_data(self, leased: LeasedInstance, warning: WarnData) -> LeasedInstance:
        told = replace(leased.instance, data_expiry_told=True)
        words = f"the cloud may drop the data of this stopped machine at {iso(warning.expires_at)}"
        new_event = NewEvent(instance_event.DATA_EXPIRING, words, {"expiresAt": iso(warning.expires_at)})
        return await self.instance_leases.save(leased, self.event_recorder.change(told, new_event))


def _with_lease_ended(it: Instance, end: End) -> Instance:
    if end.cause is not EndCause.LEASE or it.lease_term is None:
        return it
    return replace(it, lease_term=replace(it.lease_term, warned=True, ended=True))


@dataclass(frozen=True)
class RecordReclaim:
    """Writes notices down. It calls nobody: the cloud does what it has announced."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    # So long after its notice a spot machine is taken back, where the cloud does not say when; and what was
    # seen of that.
    notices: NoticeLengths
    line: CapacityLine | None = None

    async def announce(self, leased: LeasedInstance) -> LeasedInstance:
        """Tell that the machine will be taken back, and when."""
        seen = next(it for it in leased.observations if it.machine.cloud_id == leased.instance.cloud_id)
        notice = read_notice(seen.machine.spot_reclaim_at, seen.changed_at, self.notices.promised)
        warned = _warned(leased.instance, notice)
        details = {
            "spotStatus": seen.machine.spot_status,
            "reclaimAt": iso(seen.machine.spot_reclaim_at),
            "lossExpectedAt": iso(warned.loss_expected_at),
        }
        await self._avoid_place(leased.instance)
        return await self._save(
            leased, warned, NewEvent(instance_event.RECLAIM_NOTICE, warned.reason, details)
        )

    async def follow(self, leased: LeasedInstance, reclaim_at: datetime | None) -> LeasedInstance:
        """Take over another time, or that none is said any more; nobody is told again."""
        known = leased.instance.reclaim
        assert known is not None, "only what was announced is followed"
        notice = read_notice(reclaim_at, known.seen_at, self.notices.promised)
        return await self._save(leased, _warned(leased.instance, notice))

    async def withdraw(self, leased: LeasedInstance) -> LeasedInstance:
        """Tell that the machine stays after all."""
        reason = "the cloud does not take this spot machine back after all"
        kept = replace(leased.instance, reason=reason, waiting_for=None, reclaim=None)
        return await self._save(leased, kept, NewEvent(instance_event.RECLAIM_WITHDRAWN, reason))

    async def note_loss(self, it: Instance, now: datetime) -> None:
        """Remember how long its notice was, if a list has shown one."""
        if it.reclaim is not None:
            await self.notices.note_loss(now - it.reclaim.seen_at)

    async def _avoid_place(self, it: Instance) -> None:
        """Let others be rented elsewhere first: where one is taken back, others will be."""
        if self.line is not None and it.rental is not None:
            key = OfferKey(it.rental.product_id, it.rental.region, it.billing_mode)
            await self.line.note_reclaim(key)

    async def _save(
        self, leased: LeasedInstance, instance: Instance, *new_events: NewEvent
    ) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance, *new_events))


def _warned(it: Instance, notice: ReclaimNotice) -> Instance:
    """Return the instance with a notice, and with the time that is known, or to be expected."""
    at = notice.reclaim_at
    when = f"at {iso(at)}" if at else f"probably at {iso(notice.loss_expected_at)}"
    return replace(
        it, reason=f"the cloud will take this spot machine back {when}", waiting_for=None, reclaim=notice
    )
