"""Instances in the store, and the leases on them. One database keeps the promises of all these ports.

Any method may raise `StoreUnavailable`: nothing was changed. `StoreOutcomeUnknown` means that everything or
nothing was changed. "The store is down" never looks like "not found".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from gpuherd.domain.api_key import Limits
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.capacity_line import OfferRest
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.cloud.offer import OfferKey
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_event import (
    ADOPTED,
    DELETED,
    FAILED,
    Event,
)
from gpuherd.domain.instance.instance_state import was_machine_proven_gone
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.instance.plan import HeldPlan
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState
from gpuherd.domain.job import NewJob
from gpuherd.domain.money.budget import BudgetRules
from gpuherd.domain.webhooks.webhook_delivery import Delivery
from gpuherd.ports.access_port import IdempotencyClaim


@dataclass(frozen=True)
class EndedStatus:
    """A status that a change ends, and how long it lasted."""

    status: str
    lasted: timedelta


@dataclass(frozen=True)
class Change:
    """A change of one instance, written in one transaction or not at all."""

    # The new state; its `version` is the one that was read.
    instance: Instance
    events: tuple[Event, ...] = ()
    # Inserted if new, otherwise overwritten.
    attempt: Attempt | None = None
    deliveries: tuple[Delivery, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    # The job that finishes with this change.
    finished_job: str | None = None
    # The change also releases the lease, which saves a second write.
    releases_lease: bool = False
    # The clock readings when a machine ends. They give the age of its call, even if the wall clock was set
    # since and no list has noticed.
    reading: ClockReading | None = None
    # Operations that this change makes, advances or ends.
    operations: tuple[Operation, ...] = ()
    # Who requests this, for the audit log; None for gpuherd itself.
    audit_record: AuditRecord | None = None
    # Nothing is written (`QuotaExceeded`) if the owner's instances would then exceed these limits.
    limits: Limits | None = None
    # Nothing is written (`BudgetExhausted`) if a budget of the instance has too little left.
    judged_by: BudgetRules | None = None
    # A replacement that is made with this change or not at all. `StaleWrite` if its link is taken. Its limits
    # and budgets are judged with this instance in its new state.
    heir: Change | None = None
    # Changes of other instances of the lineage, written with this one or not at all.
    also: tuple[Change, ...] = ()
    # For the histogram of times in each status; None if no status ends or its start is unknown.
    ended_status: EndedStatus | None = None

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """All instances that this changes or makes."""
        heir = () if self.heir is None else (self.heir.instance.id,)
        return (self.instance.id, *(it.instance.id for it in self.also), *heir)

    @property
    def binds_machine(self) -> bool:
        """True if the instance gets its machine with this change."""
        is_bound = self.attempt is not None and self.attempt.state is AttemptState.BOUND
        return is_bound or any(it.type == ADOPTED for it in self.events)

    @property
    def ends_machine(self) -> bool:
        """True if the instance's machine has ended, or its removal is proven."""
        has_ended = any(it.type in (DELETED, FAILED) for it in self.events)
        # guard: a machine that no list has shown costs until its removal is proven
        return not self.instance.releasing and (has_ended or was_machine_proven_gone(self.instance))


@dataclass(frozen=True)
class LeasedInstance:
    """An instance under an exclusive lease, with all that a decision needs."""

    instance: Instance
    attempts: tuple[Attempt, ...]
    # Of the bound machine and of machines with the tag of the open attempt. If no machine is bound, also of
    # machines with any other tag of this instance that are not ordered away: a closed call may have made one
    # late, and this database may be older than the machine.
    observations: tuple[ObservedMachine, ...]
    # Lists since the open attempt was sent, or since the removal was requested, oldest first.
    lists: tuple[ListRecord, ...]
    token: str

    @property
    def bound_attempt(self) -> Attempt | None:
        """The create call that made the instance's own machine, if it is on record."""
        cloud_id = self.instance.cloud_id
        return next((it for it in self.attempts if cloud_id is not None and it.cloud_id == cloud_id), None)

    @property
    def open_attempt(self) -> Attempt | None:
        return next((a for a in self.attempts if a.is_open), None)


@dataclass(frozen=True)
class InstanceQuery:
    """Which instances to list, newest first."""

    statuses: tuple[Status, ...] = ()
    name: str | None = None
    label: tuple[str, str] | None = None
    owner: str | None = None
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True)
class InstancePage:
    """One page, and where the next one begins."""

    instances: tuple[Instance, ...]
    total: int
    next_cursor: str | None


@dataclass(frozen=True)
class LiveInstance:
    """An instance that is not deleted, and the tag of its create call if the outcome is open."""

    instance: Instance
    open_tag: str | None


class Instances(Protocol):
    """Instances and their records."""

    async def add(self, change: Change, *claims: IdempotencyClaim) -> Instance:
        """Store a new instance with its first events, deliveries and jobs, and return it.

        If a claim is taken, nothing is written and the instance that has it is returned;
        `IdempotencyKeyReused` if that one was created with another body.
        """
        ...

    async def update(self, change: Change, claim: IdempotencyClaim | None = None) -> Instance:
        """Write a change from outside of a pass, and return the instance as it is now.

        `StaleWrite` if the instance has changed since it was read, or the claim is taken: nothing was
        written. The claim then stands for the instance's present operation.
        """
        ...

    async def claim_operation(self, claim: IdempotencyClaim, instance: Instance) -> None:
        """Let the claim stand for the instance's operation. Changes nothing if it is taken."""
        ...

    async def claimed_operation(self, claim: IdempotencyClaim) -> tuple[Instance, Operation] | None:
        """Return what the claim stands for, if it exists; `IdempotencyKeyReused` if it is for another
        request.
        """
        ...

    async def operation(self, operation_id: str) -> tuple[Operation, str]:
        """Return an operation and the id of its instance; `NotFound` (OPERATION_NOT_FOUND) if none."""
        ...

    async def claimed(self, claim: IdempotencyClaim) -> Instance | None:
        """Return the instance of this claim, if there is one; `IdempotencyKeyReused` as above."""
        ...

    async def get(self, instance_id: str) -> Instance:
        """Return one instance; `NotFound` (INSTANCE_NOT_FOUND) if there is none."""
        ...

    async def find_named(self, name: str, owner: str | None = None) -> tuple[Instance, ...]:
        """Return all instances (of an owner) with this name that are not deleted, newest first."""
        ...

    async def of_lineage(self, lineage: str) -> tuple[Instance, ...]:
        """Return all stored instances of a lineage, the first instance first."""
        ...

    async def page(self, query: InstanceQuery) -> InstancePage:
        """Return one page of a list."""
        ...

    async def count_by_status(self) -> Mapping[Status, int]:
        """Return the number of instances in each status, zeros included."""
        ...

    async def all_live(self, owner: str | None = None) -> Sequence[LiveInstance]:
        """Return all instances (of an owner) that are not deleted, newest first."""
        ...

    async def due_for_use_look(self, now: datetime, limit: int) -> Sequence[Instance]:
        """Return the instances whose idleness must be checked, longest due first."""
        ...

    async def events(self, instance_id: str) -> tuple[Event, ...]:
        """Return the events, oldest first."""
        ...

    async def attempts(self, instance_id: str) -> tuple[Attempt, ...]:
        """Return the create calls, oldest first."""
        ...

    async def ready_times_s(self, product_name: str) -> Sequence[float]:
        """Return how long the latest rentals of this product took until they were usable.

        The product is the catalogue name of what was rented, not the name in the launch spec.
        """
        ...


class InstanceLeases(Protocol):
    """Exclusive leases on instances. Every save checks them."""

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        """Acquire the lease and read the instance; None while another holder has it.

        `NotFound` if there is no such instance: the store may have lost it.
        """
        ...

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        """Write `change` under the lease and return the instance as it now stands.

        `StaleWrite` if the row changed or the lease was lost: nothing was written.
        """
        ...

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        """Return the leased instance with everything about it as it is now; `StaleWrite` if the lease was
        lost.
        """
        ...

    async def release(self, leased: LeasedInstance) -> None:
        """Release the lease. Changes nothing if it was lost, or released by the last change."""
        ...


class CapacityMemory(Protocol):
    """Instances in line, and offers that the cloud refused for lack of stock."""

    async def load(self) -> tuple[Sequence[Instance], Sequence[OfferRest]]:
        """Return all instances in line, the oldest first, and all offers that rest or did recently."""
        ...

    async def remember(self, rest: OfferRest) -> None:
        """Store the rest of an offer, replacing the earlier one."""
        ...

    async def forget(self, key: OfferKey) -> None:
        """Delete the refusals of an offer, if there are any."""
        ...

    async def note_reclaim(self, key: OfferKey, at: datetime) -> None:
        """Record that the cloud took a spot machine of this offer back, or will."""
        ...

    async def reclaimed_since(self, moment: datetime) -> Mapping[OfferKey, datetime]:
        """Return the offers whose machines were taken back since then, and when.

        Older records are deleted.
        """
        ...

    async def prune(self, before: datetime) -> int:
        """Delete offers whose last refusal was before then; return how many."""
        ...


class HeldPlans(Protocol):
    """Plans that can be rented for a while. The claims of instances show which are used."""

    async def add(self, plan: HeldPlan) -> None:
        """Store a plan."""
        ...

    async def find(self, plan_id: str, owner: str) -> HeldPlan | None:
        """Return a plan of this owner, expired or not; None if there is none."""
        ...
