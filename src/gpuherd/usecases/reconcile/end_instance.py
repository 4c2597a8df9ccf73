"""End instances whose lease, budget or idleness says so, and record reclaim notices.

Nothing here calls the cloud. The goal that is written does the rest, and the cloud does what it announced.
"""

from __future__ import annotations

from dataclasses import replace
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
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.instances.replace_instance import end_lineage, wake_ended
from gpuherd.usecases.reconcile.reconcile_context import InstancePass
from gpuherd.usecases.services import Services

log = structlog.get_logger()


# Ends that have an event of their own. For the others the new goal says enough.
_END_EVENTS = {
    EndCause.LEASE: instance_event.LEASE_ENDED,
    EndCause.SILENCE: instance_event.SILENCE_ENDED,
    EndCause.IDLE: instance_event.IDLE_ENDED,
}


async def end_instance(this_pass: InstancePass, ending: Ending) -> None:
    """Carry out what is due: an end, or the warning of one."""
    match ending:
        case WarnLease():
            await _warn_lease(this_pass, ending)
        case WarnData():
            await _warn_data(this_pass, ending)
        case End():
            await _end(this_pass, ending)


async def _end(this_pass: InstancePass, end: End) -> None:
    services, before, now = this_pass.services, this_pass.instance, this_pass.services.clock.now()
    change_goal = goal_rules.stop if end.action is EndAction.STOP else goal_rules.delete
    after = change_goal(before, services.ids.new("op_"), now)
    # What was seen of this run says nothing about the next one.
    reason = f"asked to {end.action}: {end.reason}"
    after = replace(_with_lease_ended(after, end), use_watch=None, reason=reason)
    cause = instance_event.Cause(instance_event.END_CAUSES[end.cause], end.reason)
    new_events = [
        NewEvent(
            instance_event.GOAL_EVENTS[after.status],
            after.reason,
            {},
            before.status.value,
            after.status.value,
            cause,
        )
    ]
    if end.cause in _END_EVENTS:
        new_events.insert(0, NewEvent(_END_EVENTS[end.cause], end.reason, {"then": end.action.value}))
    change = services.event_recorder.change(after, *new_events, actor=end.actor)
    if (superseded := goal_rules.superseded(before, now)) is not None:
        change = replace(change, operations=(superseded, *change.operations))
    # A replacement that is to take over ends with it.
    change = await end_lineage(services, before, change)
    log.info("instance.ended", instance_id=before.id, cause=end.actor, action=end.action.value)
    await this_pass.write(change)
    await wake_ended(services, change)


def _with_lease_ended(instance: Instance, end: End) -> Instance:
    if end.cause is not EndCause.LEASE or instance.lease_term is None:
        return instance
    return replace(instance, lease_term=replace(instance.lease_term, warned=True, ended=True))


async def _warn_lease(this_pass: InstancePass, warning: WarnLease) -> None:
    instance = this_pass.instance
    assert instance.lease_term is not None, "only a lease that runs can end soon"
    warned = replace(instance, lease_term=replace(instance.lease_term, warned=True))
    details = {"endsAt": iso(warning.ends_at), "then": instance.lease_term.then.value}
    await this_pass.save(
        warned,
        NewEvent(instance_event.LEASE_ENDING, f"its lease ends at {iso(warning.ends_at)}", details),
    )


async def _warn_data(this_pass: InstancePass, warning: WarnData) -> None:
    warned = replace(this_pass.instance, data_expiry_told=True)
    reason = f"the cloud may drop the data of this stopped machine at {iso(warning.expires_at)}"
    details = {"expiresAt": iso(warning.expires_at)}
    await this_pass.save(warned, NewEvent(instance_event.DATA_EXPIRING, reason, details))


async def announce_reclaim(this_pass: InstancePass) -> None:
    """Report that the cloud will take the machine back, and when."""
    services, cloud_id = this_pass.services, this_pass.instance.cloud_id
    seen = next(seen for seen in this_pass.locked.observations if seen.machine.cloud_id == cloud_id)
    notice = read_notice(seen.machine.spot_reclaim_at, seen.changed_at, services.rules.reclaim_notice)
    warned = _warned(this_pass.instance, notice)
    details = {
        "spotStatus": seen.machine.spot_status,
        "reclaimAt": iso(seen.machine.spot_reclaim_at),
        "lossExpectedAt": iso(warned.loss_expected_at),
    }
    await _avoid_place(services, this_pass.instance)
    await this_pass.save(warned, NewEvent(instance_event.RECLAIM_NOTICE, warned.reason, details))


async def _avoid_place(services: Services, instance: Instance) -> None:
    """Let others be rented elsewhere first: where the cloud takes one machine back, it will take others."""
    if instance.rental is not None:
        place = OfferKey(instance.rental.product_id, instance.rental.region, instance.billing_mode)
        await services.capacity_line.note_reclaim(place)


async def follow_reclaim(this_pass: InstancePass, reclaim_at: datetime | None) -> None:
    """Record another time of the loss, or that the cloud names none any more. No event reports this."""
    known = this_pass.instance.reclaim
    assert known is not None, "only what was announced is followed"
    notice = read_notice(reclaim_at, known.seen_at, this_pass.services.rules.reclaim_notice)
    await this_pass.save(_warned(this_pass.instance, notice))


def _warned(instance: Instance, notice: ReclaimNotice) -> Instance:
    """Return the instance with a notice, and with the time that is known, or to be expected."""
    at = notice.reclaim_at
    when = f"at {iso(at)}" if at else f"probably at {iso(notice.loss_expected_at)}"
    reason = f"the cloud will take this spot machine back {when}"
    return replace(instance, reason=reason, waiting_for=None, reclaim=notice)


async def withdraw_reclaim(this_pass: InstancePass) -> None:
    """Report that the machine stays after all."""
    reason = "the cloud does not take this spot machine back after all"
    kept = replace(this_pass.instance, reason=reason, waiting_for=None, reclaim=None)
    await this_pass.save(kept, NewEvent(instance_event.RECLAIM_WITHDRAWN, reason))
