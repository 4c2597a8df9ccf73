"""Verify that a machine is the instance's own: by its tag, by the lists, or by asking the cloud."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from enum import StrEnum

import structlog

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.errors import MachineGone
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance_state import (
    is_machine_of_other_call,
    was_machine_proven_gone,
    was_made_later,
)
from gpuherd.domain.instance.rent_attempt import machine_tag
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.reconcile.reconcile_context import InstancePass
from gpuherd.usecases.services import Services

log = structlog.get_logger()


async def verify_tag(this_pass: InstancePass, machine: Machine) -> None:
    """Compare the tag of a new machine once. If the tag is lost, block creates until a person has looked."""
    instance = this_pass.instance
    bound = this_pass.locked.bound_attempt
    if instance.tag_verified or bound is None:
        return
    if machine_tag(machine) == bound.tag:
        # The next save writes this: it is not worth a transaction of its own.
        seen = replace(instance, tag_verified=True, machine_made_at=machine.created_at)
        this_pass.locked = replace(this_pass.locked, instance=seen)
        return
    reason = f"machine {machine.cloud_id} does not carry the tag {bound.tag} that it was created with"
    # guard: a lost tag stops creates
    await this_pass.services.stores.flags.put(CREATES_BLOCKED, reason)
    log.error("tag.not_preserved", instance_id=instance.id, cloud_id=machine.cloud_id)
    new_event = NewEvent(instance_event.TAG_NOT_PRESERVED, reason)
    await this_pass.save(replace(instance, tag_verified=True), new_event)


def listed_under_our_id(locked: LeasedInstance) -> ObservedMachine | None:
    """Return what the lists have last shown under the id of the instance's machine."""
    cloud_id = locked.instance.cloud_id
    return next((seen for seen in locked.observations if seen.machine.cloud_id == cloud_id), None)


def own_listed_machine(locked: LeasedInstance) -> ObservedMachine | None:
    """Return what the lists have shown of the instance's own machine."""
    listed = listed_under_our_id(locked)
    return None if listed is None or _is_other_machine(listed, locked) else listed


def is_id_passed_on(locked: LeasedInstance) -> bool:
    """Return True if the lists show that the cloud has given the id of our machine to a later one of ours."""
    listed, bound = listed_under_our_id(locked), locked.bound_attempt
    if listed is None or bound is None or listed.missing_since is not None:
        return False
    # What had the id before ours is not what got it afterwards. After a clock was set back, everything seems
    # to be seen before ours; then the cloud's own stamps decide.
    is_later = was_made_later(listed.machine, locked.instance, bound)
    # guard: after a step of the clock the cloud's stamps tell who got an id later
    return (is_later or not _was_seen_before_ours(listed, locked)) and is_of_other_call(
        listed.machine, locked
    )


def is_of_other_call(machine: Machine, locked: LeasedInstance) -> bool:
    """Return True if another create call than that of the instance's machine has made this machine."""
    bound = locked.bound_attempt
    return bound is not None and is_machine_of_other_call(machine, locked.instance, bound)


def _is_other_machine(listed: ObservedMachine, locked: LeasedInstance) -> bool:
    """Return True if the lists show another machine that has, or had, the id of ours: clouds reuse ids."""
    instance, shown = locked.instance, machine_tag(listed.machine)
    bound = locked.bound_attempt
    if bound is None or shown is None or bound.tag in (shown, listed.machine.env_tag):
        return False
    # Seen before ours was bound; or ours is gone, and this one came later. Else ours was only renamed.
    # guard: an instance does not delete the machine that has got its id
    is_later = is_machine_of_other_call(listed.machine, instance, bound)
    # guard: a vanished instance does not come back with another machine of its id
    return _was_seen_before_ours(listed, locked) or is_later or was_machine_proven_gone(instance)


def _was_seen_before_ours(listed: ObservedMachine, locked: LeasedInstance) -> bool:
    """Return True if the lists have shown nothing new under the id since the instance has its machine."""
    bound = locked.bound_attempt
    # guard: what was seen of a gone machine proves nothing about the next one of its id
    return bound is not None and bound.closed_at is not None and listed.changed_at <= bound.closed_at


# A list begun in the last minute is as good as a question: no cloud gives an id away again that soon.
LISTED_LATELY = timedelta(seconds=60)


class Ownership(StrEnum):
    """Whose machine has the id of the instance's machine."""

    OURS = "ours"
    # Of another call: the cloud has given the id to another machine.
    ANOTHERS = "anothers"
    # The cloud says that no machine has the id. One such answer proves nothing.
    DENIED = "denied"


async def ownership_before_stop(services: Services, locked: LeasedInstance) -> Ownership:
    """Return whose machine a stop would hit. The cloud takes an id and not a tag, and ids are reused."""
    if await _was_listed_lately(services, locked):
        return Ownership.OURS
    return await _ask_cloud(services, locked)


async def ownership_before_removal(services: Services, locked: LeasedInstance) -> Ownership:
    """Return whose machine a removal would hit. A repeated removal always asks the cloud."""
    is_repeated = locked.instance.asked_at is not None
    return await (_ask_cloud if is_repeated else ownership_before_stop)(services, locked)


async def _was_listed_lately(services: Services, locked: LeasedInstance) -> bool:
    last = await services.stores.observations.last_believable_list()
    # What that list has shown, and not an earlier one: the list may be newer than the lock.
    # guard: what stands for a question about a machine is what the last list has shown of it
    locked = await services.stores.instance_leases.refresh(locked)
    shown, bound = listed_under_our_id(locked), locked.bound_attempt
    if last is None or shown is None or shown.missing_since is not None:
        return False
    if bound is not None and is_machine_of_other_call(shown.machine, locked.instance, bound):
        return False
    age = last.age(services.observer.metering.read_clocks())
    # guard: a list that would not have missed a machine does not stand for it
    # guard: nothing is stopped or removed unseen under an id that may be another's
    return _has_shown(last, shown) and age is not None and age <= LISTED_LATELY


def _has_shown(last: ListRecord, shown: ObservedMachine) -> bool:
    """Return True if the list would have missed the machine.

    While our knowledge is of a clock that was ahead of the list's, what the list does not show is taken for
    newer than the list.
    """
    return shown.changed_at < last.started_at or shown.changed_at == last.finished_at


async def _ask_cloud(services: Services, locked: LeasedInstance) -> Ownership:
    try:
        machine = await services.cloud.get_machine(locked.instance.cloud_id or "")
    except MachineGone:
        # guard: nothing is stopped or removed under an id that the cloud has just denied
        return Ownership.DENIED
    return Ownership.ANOTHERS if is_of_other_call(machine, locked) else Ownership.OURS
