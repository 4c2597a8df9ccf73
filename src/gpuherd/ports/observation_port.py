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
    """What our lists of the cloud showed."""

    async def all_known(self) -> Mapping[str, ObservedMachine]:
        """Return every machine that we ever saw and that is not known to be gone for good."""
        ...

    async def witnesses(self, older_than: datetime, limit: int) -> Collection[str]:
        """Return some machines that an honest list must show: bound, in use, and old enough."""
        ...

    async def record(
        self,
        record: ListRecord,
        changed: Sequence[ObservedMachine],
        forgotten: Sequence[str],
        metering: Metering | None = None,
    ) -> tuple[Instance, ...]:
        """Write down a list: what changed, what that costs, what can be forgotten.

        Every instance that this concerns is unsettled by it, so that none is overlooked after a crash, and
        returned, so that its job can be woken at once.
        """
        ...

    async def meter_state(self) -> MeterState:
        """Return what the meters need to know at a start."""
        ...

    async def unmetered(self) -> Collection[str]:
        """Return which machines were listed last and have no span of their GPUs that goes on."""
        ...

    async def any_unsettled(self) -> bool:
        """Return True if some instance is not settled, and has a machine or may have one."""
        ...

    async def last_list(self) -> ListRecord | None:
        """Return the list that was written down last."""
        ...

    async def last_believable_list(self) -> ListRecord | None:
        """Return the latest list that proves anything."""
        ...

    async def last_vouched_list(self) -> ListRecord | None:
        """Return the latest of those that showed a machine which surely exists."""
        ...

    async def knows_any(self, machines: Sequence[Machine]) -> bool:
        """Return True if one of these is known: seen before, or an instance's, or with the tag of a call."""
        ...

    async def bound_to(self, cloud_ids: Sequence[str]) -> Bound:
        """Count the instances that count on one of these machines, and those that count on any."""
        ...

    async def lists_since(self, moment: datetime) -> Sequence[ListRecord]:
        """Return the lists that were begun after this, oldest first; they are kept for a day."""
        ...


@dataclass(frozen=True)
class OrphanCandidate:
    """One machine that may need a line in the ledger, or has one, with all that we hold about it."""

    # What the lists say; None when they do not know it (any more).
    sighting: ObservedMachine | None
    records: MachineRecords
    # Its line in the ledger, open or closed.
    orphan: Orphan | None


@dataclass(frozen=True)
class LedgerEntry:
    """What the ledger and the lists say of one machine."""

    orphan: Orphan | None
    sighting: ObservedMachine | None


@dataclass(frozen=True)
class LedgerWrite:
    """A line of the ledger as it shall be, and the events of it, on an instance or on the account."""

    orphan: Orphan
    change: Change | None = None
    account: tuple[AccountEvent, ...] = ()
    # Who asks for this, for the audit log; None for what gpuherd does by itself.
    audit_record: AuditRecord | None = None


class Orphans(Protocol):
    """The ledger. Lines are kept for a while after their machine is gone."""

    async def candidates(self) -> tuple[OrphanCandidate, ...]:
        """Return the machines about which something may have to be decided, from one look at all records.

        These are listed machines that no instance counts on and that have no open line yet; open lines whose
        machine is not listed or has an instance now; open lines that are not foreign, or not confirmed, or
        under an order. A foreign machine that nobody ordered anything about costs nothing here.
        """
        ...

    async def entry(self, cloud_id: str) -> LedgerEntry:
        """Return what the ledger and the lists say of one machine, which may be nothing."""
        ...

    async def records(self, machine: Machine) -> MachineRecords:
        """Return what we hold about a machine now."""
        ...

    async def open(self) -> tuple[Orphan, ...]:
        """Return every open line with its machine as the lists show it now, first seen first."""
        ...

    async def save(self, entries: Sequence[LedgerWrite]) -> None:
        """Write lines and their events in one transaction.

        `StaleWrite` if one of the lines or instances has changed since it was read: nothing was written.
        """
        ...

    async def begin_order(self, orphan: Orphan) -> Orphan | None:
        """Note that the cloud is asked now to carry out the order, and return the line as it is.

        None if the line has changed since it was read, or if an instance counts on the machine now: then
        nothing may be asked.
        """
        ...

    async def adopt(self, orphan: Orphan, change: Change, *, is_new: bool) -> Instance:
        """Write the instance of `change`, which has the machine, and the line as it ends.

        `Conflict` (ORPHAN_CLAIMED) if some instance counts on the machine, `StaleWrite` if the instance or
        the line has changed since it was read: nothing was written.
        """
        ...

    async def ordered_since(self, moment: datetime, by: str) -> int:
        """Count the machines whose removal was ordered by `by` since then, gone or not."""
        ...

    async def live_instances(self) -> int:
        """Count the instances that are not deleted."""
        ...

    async def forget(self, before: datetime) -> int:
        """Drop lines that were closed before then; return how many."""
        ...
