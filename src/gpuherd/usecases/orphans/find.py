"""Find an orphan: by its cloud id, in the ledger or, if it is too new for that, in the cloud itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuherd.clock import Clock
from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.errors import Conflict, MachineGone, NotFound
from gpuherd.domain.orphans.orphan import MachineRecords, Orphan, judge_machine, machine_claimed_error
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.orphans import LedgerEntry, Orphans


@dataclass(frozen=True)
class FoundOrphan:
    """An orphan, in the ledger or not yet, and what we hold about its machine."""

    orphan: Orphan
    records: MachineRecords


@dataclass(frozen=True)
class FindOrphan:
    """Judges anew at each question, from records that are read after the machine was seen."""

    orphans: Orphans
    cloud: Cloud
    clock: Clock
    installation: str
    settling: SettlingPolicy

    async def __call__(self, cloud_id: str) -> FoundOrphan:
        """Return the orphan; `NotFound` (ORPHAN_NOT_FOUND), or `Conflict` if it is none."""
        entry = await self.orphans.entry(cloud_id)
        machine = await self._machine(cloud_id, entry)
        records = await self.orphans.records(machine)
        now = self.clock.now()
        seen_at = now if entry.sighting is None else entry.sighting.first_seen_at
        finding = judge_machine(machine, records, self.installation, seen_at, self.settling)
        if finding is None and records.bound is not None:
            raise machine_claimed_error(cloud_id, records.bound.id)
        if finding is None:
            raise Conflict(
                f"a create call whose outcome is not known yet may have made machine {cloud_id}; wait for it",
                code="CREATE_UNRESOLVED",
            )
        known = entry.orphan
        if known is not None and known.is_open:
            return FoundOrphan(replace(known, machine=machine, finding=finding), records)
        new = Orphan(machine, finding, now, now, version=known.version if known else 0)
        return FoundOrphan(new, records)

    async def _machine(self, cloud_id: str, entry: LedgerEntry) -> Machine:
        seen = entry.sighting
        if seen is not None and seen.missing_since is None and seen.machine.phase is not Phase.ABSENT:
            return seen.machine
        try:
            machine = await self.cloud.get_machine(cloud_id)
        except MachineGone:
            raise _not_found(cloud_id) from None
        if machine.phase is Phase.ABSENT:
            raise _not_found(cloud_id)
        return machine


def _not_found(cloud_id: str) -> NotFound:
    return NotFound(f"there is no machine {cloud_id!r} on the account", code="ORPHAN_NOT_FOUND")
