"""Verify: the cloud must have kept our tag on the machine; without it no crash can be recovered from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.tag import machine_tag
from gpuherd.domain.instance import events
from gpuherd.ports.flags import Flags
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.cloud.creates import CREATES_BLOCKED
from gpuherd.usecases.events.record import EventRecorder, NewEvent

log = structlog.get_logger()


@dataclass(frozen=True)
class VerifyTag:
    """Looks once at each new machine; if its tag is lost, nothing is rented until a person has looked."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    flags: Flags

    async def __call__(self, leased: LeasedInstance, machine: Machine) -> LeasedInstance:
        it = leased.instance
        bound = next((a for a in leased.attempts if a.cloud_id == it.cloud_id), None)
        if it.tag_verified or bound is None:
            return leased
        if machine_tag(machine) == bound.tag:
            # Rides along with the next save: not worth a transaction of its own.
            seen = replace(it, tag_verified=True, machine_made_at=machine.created_at)
            return replace(leased, instance=seen)
        reason = f"machine {machine.cloud_id} does not carry the tag {bound.tag} that it was created with"
        # guard: a lost tag stops creates
        await self.flags.put(CREATES_BLOCKED, reason)
        log.error("tag.not_preserved", instance_id=it.id, cloud_id=machine.cloud_id)
        new_event = NewEvent(events.TAG_NOT_PRESERVED, reason)
        return await self.instance_leases.save(
            leased, self.event_recorder.change(replace(it, tag_verified=True), new_event)
        )
