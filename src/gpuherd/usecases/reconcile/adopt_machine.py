"""Bind the machine that a create call made: by its reply, by its tag, or found later."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import ObservedMachine, is_proven_not_created
from gpuherd.domain.cloud.offer import known_mode
from gpuherd.domain.cloud.orphan import LEAVING_PHASES, doubt_about
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Goal, Instance, Rental
from gpuherd.domain.instance.lease import rented_term
from gpuherd.domain.instance.rent_attempt import (
    Attempt,
    AttemptState,
    machine_tag,
    owner_tag,
    parse_tag,
)
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.usecases.cloud.read_catalogue import price_list
from gpuherd.usecases.events.record_event import NewEvent
from gpuherd.usecases.reconcile.reconcile_context import InstancePass, Pause
from gpuherd.usecases.services import Services


async def bind_machine(
    this_pass: InstancePass,
    attempt: Attempt,
    cloud_id: str,
    reason: str,
    *new_events: NewEvent,
    made_at: datetime | None = None,
) -> None:
    """Write that this machine is the instance's, in one transaction with everything that follows from it."""
    services, waiting = this_pass.services, this_pass.instance
    rental = Rental(
        product_id=attempt.product_id,
        product_name=attempt.product_name,
        region=attempt.region,
        cluster_id=attempt.cluster_id,
        gpu_hourly_usd=attempt.gpu_hourly_usd,
        image_url=attempt.image_url,
        billing_mode=attempt.billing_mode,
    )
    bound = replace(attempt, state=AttemptState.BOUND, cloud_id=cloud_id, closed_at=services.clock.now())

    def with_machine(instance: Instance) -> Instance:
        instance = replace(
            _with_lease(services, instance), cloud_id=cloud_id, machine_made_at=made_at, rental=rental
        )
        if instance.line_since is not None:
            instance = replace(instance, line_since=None)
        if instance.chain is not None and instance.chain.replaces is not None:
            # A replacement may wait for capacity for days, but once rented it must come up, or another does.
            deadline = min(instance.deadline, services.clock.now() + services.rules.instance_max_wait)
            instance = replace(instance, deadline=deadline)
        if instance.goal is not Goal.RUNNING:
            return instance
        return replace(instance, reason=reason, waiting_for=None)

    granted = () if waiting.line_since is None else (_granted(attempt),)
    await this_pass.save_outcome(with_machine, *new_events, *granted, attempt=bound)
    if not services.capacity_line.is_quiet or granted:
        await _leave_line(services, this_pass.instance, attempt)


def _with_lease(services: Services, instance: Instance) -> Instance:
    """Return an instance that has a machine now: it costs money from here on, so its lease counts."""
    terms, known = instance.terms, instance.lease_term
    term = rented_term(terms.lease, known, services.clock.now(), services.rules.lease_warning)
    return instance if term is known else replace(instance, lease_term=term)


def _granted(attempt: Attempt) -> NewEvent:
    """Return the event that ends a wait for capacity."""
    details = {"attempt": attempt.n, "productId": attempt.product_id, "region": attempt.region}
    return NewEvent(
        instance_event.GRANTED, f"got {attempt.product_name} in {attempt.region} after a wait", details
    )


async def _leave_line(services: Services, instance: Instance, attempt: Attempt) -> None:
    """Let the next instance in line try: where one machine was, there may be more."""
    services.capacity_line.note(instance)
    # The machine is on record. It does no harm if the others learn a little later of this.
    with suppress(StoreUnavailable):
        await services.capacity_line.note_rental(attempt.offer_key)
        await services.watch_capacity.wake_heads()


async def adopt_own_machine(this_pass: InstancePass) -> bool:
    """Bind a machine of the instance that the lists show. Return False if there is none to be had."""
    # guard: a late machine is taken by its own instance
    if late := _late_machine(this_pass):
        await _bind_late(this_pass, *late)
        return True
    found = unrecorded_machines(this_pass.locked, this_pass.services.stores.installation)
    if not found or await _is_shared(this_pass, found):
        return False
    await _bind_unrecorded(this_pass, found[0])
    return True


def _late_machine(this_pass: InstancePass) -> tuple[Attempt, Machine] | None:
    """Return a machine that a call of this instance has made after it was given up or refused."""
    locked = this_pass.locked
    closed = {attempt.tag: attempt for attempt in locked.attempts if _is_closed_without_machine(attempt)}
    for seen in sorted(locked.observations, key=by_evidence):
        attempt = closed.get(machine_tag(seen.machine) or "")
        if attempt is None or seen.missing_since is not None or seen.machine.phase in LEAVING_PHASES:
            continue
        settling = this_pass.services.rules.settling
        if doubt_about(seen.machine, attempt, seen.first_seen_at, settling) is None:
            return attempt, seen.machine
    return None


def _is_closed_without_machine(attempt: Attempt) -> bool:
    return not attempt.is_open and attempt.cloud_id is None


async def _bind_late(this_pass: InstancePass, attempt: Attempt, machine: Machine) -> None:
    new_event = NewEvent(
        instance_event.MACHINE_FOUND,
        "found by its tag after the create call was given up",
        {"attempt": attempt.n, "cloudInstanceId": machine.cloud_id, "late": True},
    )
    await bind_machine(
        this_pass, attempt, machine.cloud_id, "found by its tag", new_event, made_at=machine.created_at
    )


async def _is_shared(this_pass: InstancePass, found: Sequence[Machine]) -> bool:
    """Return True if a second database has made one of these machines, or is known to make some."""
    alarm = this_pass.services.alarm
    if await alarm.reason() is not None:
        return True
    for machine in found:
        # guard: the machine of a second user is not taken
        if await alarm.is_proof(machine, this_pass.locked.attempts):
            await alarm.raise_for(machine)
            return True
    return False


async def _bind_unrecorded(this_pass: InstancePass, machine: Machine) -> None:
    """Bind a machine of this instance whose create call the database has lost, and record the call."""
    services, tag = this_pass.services, owner_tag(machine)
    assert tag is not None, "only a tagged machine can be forgotten"
    new_event = NewEvent(
        instance_event.MACHINE_FOUND,
        "found by its tag; this database had no record of the create call",
        {"attempt": tag.attempt, "cloudInstanceId": machine.cloud_id},
    )
    reason = "found by its tag, rented before this database was put back"
    price = (await price_list(services.catalogue)).gpu_hourly_usd(machine)
    if price is None:
        with_machine = partial(_without_price, services, cloud_id=machine.cloud_id, reason=reason)
        await this_pass.save_outcome(with_machine, new_event, attempt=None)
        return
    attempt = Attempt(
        instance_id=this_pass.instance.id,
        n=_free_number(this_pass.locked, tag.attempt),
        tag=str(tag),
        state=AttemptState.BOUND,
        product_id=machine.product_id,
        product_name=machine.product_name,
        region=machine.region,
        cluster_id=machine.cluster_id,
        gpu_hourly_usd=price,
        sent_at=machine.created_at or services.clock.now(),
        boot_id=services.rules.boot_id,
        image_url=machine.image_url,
        billing_mode=known_mode(machine.billing_mode),
    )
    await bind_machine(this_pass, attempt, machine.cloud_id, reason, new_event, made_at=machine.created_at)


def _without_price(services: Services, instance: Instance, *, cloud_id: str, reason: str) -> Instance:
    """Return the instance with a machine whose price the catalogue does not know."""
    return replace(_with_lease(services, instance), cloud_id=cloud_id, reason=reason, waiting_for=None)


def unrecorded_machines(locked: LeasedInstance, installation: str) -> list[Machine]:
    """Return the machines of this instance that are listed, stay, and whose call is not on record.

    The oldest comes first; those come last that carry the tag in their environment only.
    """
    found = [seen for seen in locked.observations if _is_unrecorded(seen, locked, installation)]
    return [seen.machine for seen in sorted(found, key=by_evidence)]


def _is_unrecorded(seen: ObservedMachine, locked: LeasedInstance, installation: str) -> bool:
    tag = owner_tag(seen.machine)
    if tag is None or seen.missing_since is not None or seen.machine.phase in LEAVING_PHASES:
        return False
    ours = tag.installation == installation and tag.instance_key == locked.instance.key
    return ours and all(attempt.tag != str(tag) for attempt in locked.attempts)


def by_evidence(seen: ObservedMachine) -> tuple[bool, datetime]:
    """Sort machines whose name carries the tag first. People copy environments, rarely names."""
    return parse_tag(seen.machine.name) is None, seen.machine.created_at or seen.first_seen_at


def _free_number(locked: LeasedInstance, wanted: int) -> int:
    """Return the number under which a call of another life goes on record beside our own."""
    taken = {attempt.n for attempt in locked.attempts}
    return wanted if wanted not in taken else max(taken) + 1


async def resolve_attempt(this_pass: InstancePass) -> Pause | None:
    """Adopt the machine of an unanswered create call, or abandon the call when its absence is proven."""
    services, attempt = this_pass.services, this_pass.locked.open_attempt
    assert attempt is not None, "only an open attempt is resolved"
    if attempt.state is AttemptState.SENT:
        # A pass died between its intent and the answer: the call may have gone out.
        attempt = await _doubt(this_pass, attempt)
    if found := _tagged(this_pass.locked, attempt):
        machine = found.machine
        new_event = NewEvent(
            instance_event.MACHINE_FOUND,
            "found by its tag after the create call got no answer",
            {"attempt": attempt.n, "cloudInstanceId": machine.cloud_id},
        )
        await bind_machine(
            this_pass, attempt, machine.cloud_id, "found by its tag", new_event, made_at=machine.created_at
        )
        return None
    settling, now = services.rules.settling, services.clock.now()
    if is_proven_not_created(attempt.sent_at, this_pass.locked.lists, now, settling):
        await _abandon(this_pass, attempt)
        return None
    return Pause(settling.list_spacing)


async def _doubt(this_pass: InstancePass, attempt: Attempt) -> Attempt:
    unsure = replace(
        attempt,
        state=AttemptState.UNKNOWN,
        error_code="INTERRUPTED",
        error="gpuherd was interrupted during the create call",
    )
    new_event = NewEvent(instance_event.OUTCOME_UNKNOWN, unsure.error, {"attempt": attempt.n})
    reason = "the create call was interrupted; looking for its machine"
    instance = replace(this_pass.instance, reason=reason, waiting_for=None)
    await this_pass.save(instance, new_event, attempt=unsure)
    return unsure


async def _abandon(this_pass: InstancePass, attempt: Attempt) -> None:
    given_up = replace(attempt, state=AttemptState.ABANDONED, closed_at=this_pass.services.clock.now())
    instance = replace(this_pass.instance, reason="the create call had no effect", waiting_for=None)
    await this_pass.save(instance, attempt=given_up)


def _tagged(locked: LeasedInstance, attempt: Attempt) -> ObservedMachine | None:
    """Return the machine that carries exactly this attempt's tag; the likeliest, should there be several."""
    # guard: exact tag
    matches = [
        seen
        for seen in locked.observations
        if machine_tag(seen.machine) == attempt.tag and seen.machine.phase is not Phase.ABSENT
    ]
    return min(matches, key=by_evidence, default=None)


async def may_have_lost_create(services: Services, instance: Instance) -> bool:
    """Return True if the store may have lost a create call of this instance that no list shows yet."""
    lost_at = services.stores.history.lost_at
    if lost_at is None or instance.created_at > lost_at:
        return False
    lists = await services.stores.observations.lists_since(lost_at)
    return not is_proven_not_created(lost_at, lists, services.clock.now(), services.rules.settling)
