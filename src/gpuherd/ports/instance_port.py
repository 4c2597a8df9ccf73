"""Instances in the store, and the leases on them. One database keeps the promises of all such ports.

Any method may raise `StoreUnavailable`: nothing was changed, unless it is a `StoreOutcomeUnknown`, which may
have changed everything that was asked for. "The store is down" is never "not found".
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
    """What shall become true of one instance, in one transaction or not at all."""

    # As it shall be; its `version` is the one that was read.
    instance: Instance
    events: tuple[Event, ...] = ()
    # Inserted when new, else overwritten.
    attempt: Attempt | None = None
    deliveries: tuple[Delivery, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    # The job that has reached its end with this change.
    finished_job: str | None = None
    # The lease goes back with this change: nobody has to wait for a release of its own.
    releases_lease: bool = False
    # What the clocks show, where a machine ends: how long ago its call went out is told by that, even if the
    # wall clock was set since and no list has noticed.
    reading: ClockReading | None = None
    # Operations that this change makes, moves or ends.
    operations: tuple[Operation, ...] = ()
    # Who asks for this, for the audit log; None for what gpuherd does by itself.
    audit_record: AuditRecord | None = None
    # Nothing is written (`QuotaExceeded`) if with this the owner's instances would use more.
    limits: Limits | None = None
    # Nothing is written (`BudgetExhausted`) if a budget that the instance is in has too little left for this.
    judged_by: BudgetRules | None = None
    # An instance that takes over from this one, made with this change or not at all. `StaleWrite` if its link
    # has one already. Its limits and budgets are judged with this one as it will be.
    heir: Change | None = None
    # What shall become true of others of its lineage, with this change or not at all.
    also: tuple[Change, ...] = ()
    # For the histogram of the times in each status; None where none ends, or nobody knows since when it was.
    ended_status: EndedStatus | None = None

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """All instances that this changes or makes."""
        heir = () if self.heir is None else (self.heir.instance.id,)
        return (self.instance.id, *(it.instance.id for it in self.also), *heir)

    @property
    def binds_machine(self) -> bool:
        """Whether the instance has its machine since this change."""
        is_bound = self.attempt is not None and self.attempt.state is AttemptState.BOUND
        return is_bound or any(it.type == ADOPTED for it in self.events)

    @property
    def ends_machine(self) -> bool:
        """Whether nothing more comes of the instance's machine: it has ended, or its removal is proven."""
        has_ended = any(it.type in (DELETED, FAILED) for it in self.events)
        # guard: a machine that no list has shown costs until its removal is proven
        return not self.instance.releasing and (has_ended or was_machine_proven_gone(self.instance))


@dataclass(frozen=True)
class LeasedInstance:
    """An instance under an exclusive lease, with all that a decision needs."""

    instance: Instance
    attempts: tuple[Attempt, ...]
    # Of the machine that is bound, and of those that carry the tag of the open attempt; while none is bound
    # also of those that carry any other tag of this instance and are not to be removed: a closed call may
    # have made one late, and this database may be older than the machine.
    observations: tuple[ObservedMachine, ...]
    # Lists made since the open attempt was sent, or since the removal was asked for, oldest first.
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
    """An instance that is not deleted, and the tag of its create call if the outcome of one is open."""

    instance: Instance
    open_tag: str | None


class Instances(Protocol):
    """Instances and what happened to them."""

    async def add(self, change: Change, *claims: IdempotencyClaim) -> Instance:
        """Remember a new instance with its first events, deliveries and jobs, and return it.

        If one of the claims is taken, nothing is written and the instance that has it is returned;
        `IdempotencyKeyReused` if that one was asked for with another body.
        """
        ...

    async def update(self, change: Change, claim: IdempotencyClaim | None = None) -> Instance:
        """Write a change that somebody outside of a pass has made, and return the instance as it is now.

        `StaleWrite` if the instance has changed since it was read, or the claim is taken: nothing was
        written. The claim then stands for the instance's present operation.
        """
        ...

    async def claim_operation(self, claim: IdempotencyClaim, instance: Instance) -> None:
        """Let the claim stand for the operation that the instance has; quiet if it is taken."""
        ...

    async def claimed_operation(self, claim: IdempotencyClaim) -> tuple[Instance, Operation] | None:
        """Return what this claim stands for, if it was made; `IdempotencyKeyReused` if for something else."""
        ...

    async def operation(self, operation_id: str) -> tuple[Operation, str]:
        """Return an operation and the id of its instance; `NotFound` (OPERATION_NOT_FOUND) if none."""
        ...

    async def claimed(self, claim: IdempotencyClaim) -> Instance | None:
        """Return the instance that has this claim, if there is one; `IdempotencyKeyReused` as above."""
        ...

    async def get(self, instance_id: str) -> Instance:
        """Return one; `NotFound` (INSTANCE_NOT_FOUND) if there is none."""
        ...

    async def find_named(self, name: str, owner: str | None = None) -> tuple[Instance, ...]:
        """Return all (of an owner) that have this name and are not deleted, newest first."""
        ...

    async def of_lineage(self, lineage: str) -> tuple[Instance, ...]:
        """Return all instances of a lineage that are remembered, the first of them first."""
        ...

    async def page(self, query: InstanceQuery) -> InstancePage:
        """Return one page of a list."""
        ...

    async def count_by_status(self) -> Mapping[Status, int]:
        """Return how many there are in each status, also where there are none."""
        ...

    async def all_live(self, owner: str | None = None) -> Sequence[LiveInstance]:
        """Return all (of an owner) that are not deleted, newest first."""
        ...

    async def due_for_use_look(self, now: datetime, limit: int) -> Sequence[Instance]:
        """Return those of which it should be found out whether they are idle, longest due first."""
        ...

    async def events(self, instance_id: str) -> tuple[Event, ...]:
        """Return what happened, oldest first."""
        ...

    async def attempts(self, instance_id: str) -> tuple[Attempt, ...]:
        """Return the create calls, oldest first."""
        ...

    async def ready_times_s(self, product_name: str) -> Sequence[float]:
        """Return how long the latest rentals of this product took until they were usable.

        It goes by what was rented, under its name in the catalogue, not by how it was wished for.
        """
        ...


class InstanceLeases(Protocol):
    """Exclusive leases on instances, which every save checks."""

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
        """Return the leased instance with everything about it as it is now; `StaleWrite` if it was lost."""
        ...

    async def release(self, leased: LeasedInstance) -> None:
        """Give the lease back. Quiet when it was lost, or went back with the last change."""
        ...


class CapacityMemory(Protocol):
    """Instances in line, and offers that the cloud has refused for lack of stock."""

    async def load(self) -> tuple[Sequence[Instance], Sequence[OfferRest]]:
        """Return all that are in line, the oldest first, and all offers that rest or did lately."""
        ...

    async def remember(self, rest: OfferRest) -> None:
        """Write down how an offer rests, over what is known of it."""
        ...

    async def forget(self, key: OfferKey) -> None:
        """Forget the refusals of an offer. Quiet when there are none."""
        ...

    async def note_reclaim(self, key: OfferKey, at: datetime) -> None:
        """Write down that the cloud has taken a spot machine back there, or will."""
        ...

    async def reclaimed_since(self, moment: datetime) -> Mapping[OfferKey, datetime]:
        """Return where machines were taken back since then and when, and forget where it was longer ago."""
        ...

    async def prune(self, before: datetime) -> int:
        """Forget offers that were refused before then for the last time; return how many."""
        ...


class HeldPlans(Protocol):
    """Plans that may be rented for a while. Which are used up is known by the claims of instances."""

    async def add(self, plan: HeldPlan) -> None:
        """Remember a plan."""
        ...

    async def find(self, plan_id: str, owner: str) -> HeldPlan | None:
        """Return a plan of this owner, expired or not; None if there is none (any more)."""
        ...
