"""Lists of the account and the ledger of orphans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.blast_limit import Bound
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.cloud.orphan import MachineRecords, Orphan
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.money.meter import Metering, MeterState
from gpuherd.ports.event_port import AccountEvent
from gpuherd.ports.instance_port import Change


class Observations(Protocol):
    """The stored results of our lists of the cloud."""

    async def all_known(self) -> Mapping[str, ObservedMachine]:
        """Return every machine ever seen that is not proven to be gone."""
        ...

    async def witnesses(self, older_than: datetime, limit: int) -> Collection[str]:
        """Return some machines that a correct list must show: bound, in use, and old enough."""
        ...

    async def record(
        self,
        record: ListRecord,
        changed: Sequence[ObservedMachine],
        forgotten: Sequence[str],
        metering: Metering | None = None,
    ) -> tuple[Instance, ...]:
        """Store a list: the changes, their costs, and what can be deleted.

        Every affected instance is marked unsettled, so that a crash loses none, and is returned, so that its
        job can be woken.
        """
        ...

    async def meter_state(self) -> MeterState:
        """Return what the meters need at a start."""
        ...

    async def unmetered(self) -> Collection[str]:
        """Return the machines that were listed last and have no open GPU span."""
        ...

    async def any_unsettled(self) -> bool:
        """Return True if an instance that has, or may have, a machine is not settled."""
        ...

    async def last_list(self) -> ListRecord | None:
        """Return the last stored list."""
        ...

    async def last_believable_list(self) -> ListRecord | None:
        """Return the last credible list."""
        ...

    async def last_vouched_list(self) -> ListRecord | None:
        """Return the last list that showed a machine that certainly exists."""
        ...

    async def knows_any(self, machines: Sequence[Machine]) -> bool:
        """Return True if one is known: seen before, bound to an instance, or tagged by a call."""
        ...

    async def bound_to(self, cloud_ids: Sequence[str]) -> Bound:
        """Count the instances that have one of these machines, and those that have any."""
        ...

    async def lists_since(self, moment: datetime) -> Sequence[ListRecord]:
        """Return the lists that began after this moment, oldest first. They are kept for a day."""
        ...


@dataclass(frozen=True)
class OrphanCandidate:
    """One machine that may need an entry in the ledger, or has one, with all our records of it."""

    # What the lists say; None if they do not know the machine.
    sighting: ObservedMachine | None
    records: MachineRecords
    # Its entry in the ledger, open or closed.
    orphan: Orphan | None


@dataclass(frozen=True)
class LedgerEntry:
    """What the ledger and the lists say about one machine."""

    orphan: Orphan | None
    sighting: ObservedMachine | None


@dataclass(frozen=True)
class LedgerWrite:
    """A new state of an entry, and its events on an instance or on the account."""

    orphan: Orphan
    change: Change | None = None
    account: tuple[AccountEvent, ...] = ()
    # Who requests this, for the audit log; None for gpuherd itself.
    audit_record: AuditRecord | None = None


class Orphans(Protocol):
    """The ledger of orphans. Entries are kept for a while after their machine is gone."""

    async def candidates(self) -> tuple[OrphanCandidate, ...]:
        """Return the machines that may need a decision, from one read of all records.

        These are: listed machines without an instance and without an open entry; open entries whose machine
        is not listed or has an instance now; open entries that are not foreign, not confirmed, or under an
        order. A foreign machine without an order costs nothing here.
        """
        ...

    async def entry(self, cloud_id: str) -> LedgerEntry:
        """Return what the ledger and the lists say about one machine, which may be nothing."""
        ...

    async def records(self, machine: Machine) -> MachineRecords:
        """Return our records of a machine."""
        ...

    async def open(self) -> tuple[Orphan, ...]:
        """Return every open entry with its machine as last listed, first seen first."""
        ...

    async def save(self, entries: Sequence[LedgerWrite]) -> None:
        """Write entries and their events in one transaction.

        `StaleWrite` if an entry or instance has changed since it was read: nothing was written.
        """
        ...

    async def begin_order(self, orphan: Orphan) -> Orphan | None:
        """Record that the cloud is now asked to execute the order, and return the entry.

        None if the entry has changed since it was read, or if an instance has the machine now: then the cloud
        must not be asked.
        """
        ...

    async def adopt(self, orphan: Orphan, change: Change, *, is_new: bool) -> Instance:
        """Write the instance of `change`, which has the machine, and close the entry.

        `Conflict` (ORPHAN_CLAIMED) if another instance has the machine, `StaleWrite` if the instance or the
        entry has changed since it was read: nothing was written.
        """
        ...

    async def ordered_since(self, moment: datetime, by: str) -> int:
        """Count the machines whose removal `by` ordered since then, gone or not."""
        ...

    async def live_instances(self) -> int:
        """Count the instances that are not deleted."""
        ...

    async def forget(self, before: datetime) -> int:
        """Delete entries that were closed before then; return how many."""
        ...
