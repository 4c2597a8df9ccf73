"""Bind the machine that a create call made: by its reply, by its tag, or found later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import (
    ListRecord,
    ObservedMachine,
    SettlingPolicy,
    is_proven_not_created,
)
from gpuherd.domain.cloud.offer import known_mode
from gpuherd.domain.cloud.orphan import LEAVING_PHASES, doubt_about
from gpuherd.domain.errors import MachineGone, StaleWrite, StoreUnavailable
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Goal, Instance, Rental
from gpuherd.domain.instance.instance_state import is_machine_of_other_call
from gpuherd.domain.instance.lease import rented_term
from gpuherd.domain.instance.rent_attempt import (
    Attempt,
    AttemptState,
    machine_tag,
    owner_tag,
    parse_tag,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.instance_port import InstanceLeases, LeasedInstance
from gpuherd.ports.observation_port import Observations
from gpuherd.ports.replica_port import Flags
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED, InstallationAlarm
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, price_list
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.service.leader_election import StoreHistory


@dataclass(frozen=True, kw_only=True)
class BindMachine:
    """Gives an instance the machine that one of its create calls has made."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    clock: Clock
    # How far ahead the end of a lease is announced.
    lease_warning: timedelta
    line: CapacityLine
    # Wakes whoever is the next in line.
    wake_heads: Callable[[], Awaitable[object]]
    # How long a boot may take.
    max_wait: timedelta

    async def __call__(
        self,
        leased: LeasedInstance,
        attempt: Attempt,
        cloud_id: str,
        reason: str,
        *new_events: NewEvent,
        made_at: datetime | None = None,
    ) -> LeasedInstance:
        """Write down that this machine is ours, in one transaction with everything that follows from it."""
        rental = Rental(
            product_id=attempt.product_id,
            product_name=attempt.product_name,
            region=attempt.region,
            cluster_id=attempt.cluster_id,
            gpu_hourly_usd=attempt.gpu_hourly_usd,
            image_url=attempt.image_url,
            billing_mode=attempt.billing_mode,
        )
        bound = replace(attempt, state=AttemptState.BOUND, cloud_id=cloud_id, closed_at=self.clock.now())

        def with_machine(it: Instance) -> Instance:
            it = replace(self.with_lease(it), cloud_id=cloud_id, machine_made_at=made_at, rental=rental)
            it = it if it.line_since is None else replace(it, line_since=None)
            if it.chain is not None and it.chain.replaces is not None:
                # An heir may wait for capacity for days, but what is rented must come up, or another does.
                it = replace(it, deadline=min(it.deadline, self.clock.now() + self.max_wait))
            return replace(it, reason=reason, waiting_for=None) if it.goal is Goal.RUNNING else it

        granted = () if leased.instance.line_since is None else (_granted(leased.instance, attempt),)
        leased = await self.save_outcome(leased, with_machine, *new_events, *granted, attempt=bound)
        if not self.line.is_quiet or granted:
            await self._leave_line(leased.instance, attempt)
        return leased

    async def _leave_line(self, it: Instance, attempt: Attempt) -> None:
        """Let the next one try: where one machine was, there may be more."""
        self.line.note(it)
        # The machine is on record; that others hear of it a little later does no harm.
        with suppress(StoreUnavailable):
            await self.line.note_rental(attempt.offer_key)
            await self.wake_heads()

    def with_lease(self, it: Instance) -> Instance:
        """Return an instance that has a machine now: it costs money from here on, so its lease counts."""
        term = rented_term(it.terms.lease, it.lease_term, self.clock.now(), self.lease_warning)
        return it if term is it.lease_term else replace(it, lease_term=term)

    async def save_outcome(
        self,
        leased: LeasedInstance,
        change: Callable[[Instance], Instance],
        *new_events: NewEvent,
        attempt: Attempt | None,
    ) -> LeasedInstance:
        """Write down how a call went, whatever the user has come to want while it was under way."""
        while True:
            try:
                noted = self.event_recorder.change(change(leased.instance), *new_events, attempt=attempt)
                return await self.instance_leases.save(leased, noted)
            except StaleWrite:
                # Raises if the lease is gone; else only the goal has changed, and this still holds.
                leased = await self.instance_leases.refresh(leased)


def _granted(it: Instance, attempt: Attempt) -> NewEvent:
    """Return that a wait for capacity has come to its end."""
    details = {"attempt": attempt.n, "productId": attempt.product_id, "region": attempt.region}
    return NewEvent(
        instance_event.GRANTED, f"got {attempt.product_name} in {attempt.region} after a wait", details
    )


@dataclass(frozen=True, kw_only=True)
class BindFoundMachine:
    """Looks for a machine of the instance among what the lists showed, and binds it."""

    bind: BindMachine
    catalogue: CatalogueCache
    alarm: InstallationAlarm
    clock: Clock
    settling: SettlingPolicy
    installation: str
    boot_id: str

    async def __call__(self, leased: LeasedInstance) -> LeasedInstance | None:
        """Return the instance with its machine bound; None if there is none to be had."""
        # guard: a late machine is taken by its own instance
        if late := self._late_machine(leased):
            return await self._bind_late(leased, *late)
        if (found := unrecorded_machines(leased, self.installation)) and not await self._is_shared(
            leased, found
        ):
            return await self._bind_unrecorded(leased, found[0])
        return None

    def _late_machine(self, leased: LeasedInstance) -> tuple[Attempt, Machine] | None:
        """Return a machine that a call of this instance has made after it was given up or refused."""
        closed = {it.tag: it for it in leased.attempts if not it.is_open and it.cloud_id is None}
        for it in sorted(leased.observations, key=by_evidence):
            attempt = closed.get(machine_tag(it.machine) or "")
            if attempt is None or it.missing_since is not None or it.machine.phase in LEAVING_PHASES:
                continue
            if doubt_about(it.machine, attempt, it.first_seen_at, self.settling) is None:
                return attempt, it.machine
        return None

    async def _bind_late(self, leased: LeasedInstance, attempt: Attempt, machine: Machine) -> LeasedInstance:
        new_event = NewEvent(
            instance_event.MACHINE_FOUND,
            "found by its tag after the create call was given up",
            {"attempt": attempt.n, "cloudInstanceId": machine.cloud_id, "late": True},
        )
        return await self.bind(
            leased, attempt, machine.cloud_id, "found by its tag", new_event, made_at=machine.created_at
        )

    async def _is_shared(self, leased: LeasedInstance, found: Sequence[Machine]) -> bool:
        """Return True if a second database has made one of these machines, or is known to make some."""
        if await self.alarm.reason() is not None:
            return True
        for machine in found:
            # guard: the machine of a second user is not taken
            if await self.alarm.is_proof(machine, leased.attempts):
                await self.alarm.raise_for(machine)
                return True
        return False

    async def _bind_unrecorded(self, leased: LeasedInstance, machine: Machine) -> LeasedInstance:
        """Bind a machine of this instance whose create call our memory has lost, and remember the call."""
        tag = owner_tag(machine)
        assert tag is not None, "only a tagged machine can be forgotten"
        new_event = NewEvent(
            instance_event.MACHINE_FOUND,
            "found by its tag; this database had no record of the create call",
            {"attempt": tag.attempt, "cloudInstanceId": machine.cloud_id},
        )
        reason = "found by its tag, rented before this database was put back"
        price = (await price_list(self.catalogue)).gpu_hourly_usd(machine)
        if price is None:
            return await self.bind.save_outcome(
                leased,
                lambda it: replace(
                    self.bind.with_lease(it), cloud_id=machine.cloud_id, reason=reason, waiting_for=None
                ),
                new_event,
                attempt=None,
            )
        attempt = Attempt(
            instance_id=leased.instance.id,
            n=_free_number(leased, tag.attempt),
            tag=str(tag),
            state=AttemptState.BOUND,
            product_id=machine.product_id,
            product_name=machine.product_name,
            region=machine.region,
            cluster_id=machine.cluster_id,
            gpu_hourly_usd=price,
            sent_at=machine.created_at or self.clock.now(),
            boot_id=self.boot_id,
            image_url=machine.image_url,
            billing_mode=known_mode(machine.billing_mode),
        )
        return await self.bind(
            leased, attempt, machine.cloud_id, reason, new_event, made_at=machine.created_at
        )


def unrecorded_machines(leased: LeasedInstance, installation: str) -> list[Machine]:
    """Return the machines of this instance that are listed, stay, and whose call is not on record.

    The oldest first; those that only their environment speaks for last.
    """
    found = [it for it in leased.observations if _is_unrecorded(it, leased, installation)]
    return [it.machine for it in sorted(found, key=by_evidence)]


def _is_unrecorded(it: ObservedMachine, leased: LeasedInstance, installation: str) -> bool:
    tag = owner_tag(it.machine)
    if tag is None or it.missing_since is not None or it.machine.phase in LEAVING_PHASES:
        return False
    ours = tag.installation == installation and tag.instance_key == leased.instance.key
    return ours and all(attempt.tag != str(tag) for attempt in leased.attempts)


def by_evidence(it: ObservedMachine) -> tuple[bool, datetime]:
    """Sort machines by how likely they are ours: a name is copied as seldom as an environment often."""
    return parse_tag(it.machine.name) is None, it.machine.created_at or it.first_seen_at


def _free_number(leased: LeasedInstance, wanted: int) -> int:
    """Return the number under which a call of another life goes on record beside our own."""
    taken = {it.n for it in leased.attempts}
    return wanted if wanted not in taken else max(taken) + 1


@dataclass(frozen=True)
class ResolveAttempt:
    """Adopts the machine of an unanswered create call, or gives the call up when its absence is proven."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    bind: BindMachine
    clock: Clock
    settling: SettlingPolicy

    async def __call__(
        self, leased: LeasedInstance, attempt: Attempt
    ) -> tuple[LeasedInstance, timedelta | None]:
        """Return the instance, and how long to wait before the next look if the outcome is still unknown."""
        if attempt.state is AttemptState.SENT:
            # A pass died between its intent and the answer: the call may have gone out.
            leased, attempt = await self._doubt(leased, attempt)
        if found := _tagged(leased, attempt):
            machine = found.machine
            new_event = NewEvent(
                instance_event.MACHINE_FOUND,
                "found by its tag after the create call got no answer",
                {"attempt": attempt.n, "cloudInstanceId": machine.cloud_id},
            )
            bound = await self.bind(
                leased, attempt, machine.cloud_id, "found by its tag", new_event, made_at=machine.created_at
            )
            return bound, None
        if is_proven_not_created(attempt.sent_at, leased.lists, self.clock.now(), self.settling):
            return await self._abandon(leased, attempt), None
        return leased, self.settling.list_spacing

    async def _doubt(self, leased: LeasedInstance, attempt: Attempt) -> tuple[LeasedInstance, Attempt]:
        unsure = replace(
            attempt,
            state=AttemptState.UNKNOWN,
            error_code="INTERRUPTED",
            error="gpuherd was interrupted during the create call",
        )
        new_event = NewEvent(instance_event.OUTCOME_UNKNOWN, unsure.error, {"attempt": attempt.n})
        instance = replace(
            leased.instance,
            reason="the create call was interrupted; looking for its machine",
            waiting_for=None,
        )
        leased = await self.instance_leases.save(
            leased, self.event_recorder.change(instance, new_event, attempt=unsure)
        )
        return leased, unsure

    async def _abandon(self, leased: LeasedInstance, attempt: Attempt) -> LeasedInstance:
        given_up = replace(attempt, state=AttemptState.ABANDONED, closed_at=self.clock.now())
        instance = replace(leased.instance, reason="the create call had no effect", waiting_for=None)
        return await self.instance_leases.save(leased, self.event_recorder.change(instance, attempt=given_up))


def _tagged(leased: LeasedInstance, attempt: Attempt) -> ObservedMachine | None:
    """Return the machine that carries exactly this attempt's tag; the likeliest, should there be several."""
    # guard: exact tag
    matches = [
        it
        for it in leased.observations
        if machine_tag(it.machine) == attempt.tag and it.machine.phase is not Phase.ABSENT
    ]
    return min(matches, key=by_evidence, default=None)


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
        new_event = NewEvent(instance_event.TAG_NOT_PRESERVED, reason)
        return await self.instance_leases.save(
            leased, self.event_recorder.change(replace(it, tag_verified=True), new_event)
        )


@dataclass(frozen=True)
class LostCreates:
    """What `RentMachine` asks before it rents."""

    history: StoreHistory
    observations: Observations
    clock: Clock
    settling: SettlingPolicy

    async def may_exist(self, it: Instance) -> bool:
        """Return True if a create call for this instance may have been lost, and not be visible yet."""
        lost_at = self.history.lost_at
        if lost_at is None or it.created_at > lost_at:
            return False
        lists = await self.observations.lists_since(lost_at)
        return not is_proven_not_created(lost_at, lists, self.clock.now(), self.settling)


# A list begun in the last minute is as good as a question. No cloud gives an id away again that soon.
LISTED_LATELY = timedelta(seconds=60)


class Ownership(StrEnum):
    """Whose a machine is that has the id of an instance's own."""

    OURS = "ours"
    # Of another call: the cloud has given the id to it.
    ANOTHERS = "anothers"
    # The cloud says that nothing has the id. One such answer proves neither that, nor that it is still ours.
    DENIED = "denied"


@dataclass(frozen=True)
class VerifyOwnMachine:
    """The cloud takes an id and not a tag. While it shows nothing, the id may become another machine's."""

    cloud: Cloud
    instance_leases: InstanceLeases
    observations: Observations
    read_clocks: Callable[[], ClockReading]

    async def before_stop(self, leased: LeasedInstance) -> Ownership:
        """Return True if a stop would hit the instance's own machine."""
        return Ownership.OURS if await self._was_listed_lately(leased) else await self._ask(leased)

    async def before_removal(self, leased: LeasedInstance) -> Ownership:
        """Return True if a removal would hit the instance's own machine."""
        is_repeated = leased.instance.asked_at is not None
        return await self._ask(leased) if is_repeated else await self.before_stop(leased)

    async def _was_listed_lately(self, leased: LeasedInstance) -> bool:
        last = await self.observations.last_believable_list()
        # What that list has shown, and not one before it: it may have come since the instance was leased.
        # guard: what stands for a question about a machine is what the last list has shown of it
        leased = await self.instance_leases.refresh(leased)
        shown, bound = listed_machine(leased), leased.bound_attempt
        if last is None or shown is None or shown.missing_since is not None:
            return False
        if bound is not None and is_machine_of_other_call(shown.machine, leased.instance, bound):
            return False
        age = last.age(self.read_clocks())
        # guard: a list that would not have missed a machine does not stand for it
        # guard: nothing is stopped or removed unseen under an id that may be another's
        return _has_shown(last, shown) and age is not None and age <= LISTED_LATELY

    async def _ask(self, leased: LeasedInstance) -> Ownership:
        try:
            machine = await self.cloud.get_machine(leased.instance.cloud_id or "")
        except MachineGone:
            # guard: nothing is stopped or removed under an id that the cloud has just denied
            return Ownership.DENIED
        bound = leased.bound_attempt
        is_anothers = bound is not None and is_machine_of_other_call(machine, leased.instance, bound)
        return Ownership.ANOTHERS if is_anothers else Ownership.OURS


def _has_shown(last: ListRecord, shown: ObservedMachine) -> bool:
    """Return True if a list would have missed a machine. While our knowledge is of a clock that was ahead of
    the list's, what the list does not show is taken for newer than the list."""
    return shown.changed_at < last.started_at or shown.changed_at == last.finished_at


def listed_machine(leased: LeasedInstance) -> ObservedMachine | None:
    """Return what the lists have last shown under the id of the instance's machine."""
    cloud_id = leased.instance.cloud_id
    return next((it for it in leased.observations if it.machine.cloud_id == cloud_id), None)
