"""Brings the ledger of orphans up to date with a list: opens, judges anew and closes lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.observation import ListRecord, SettlingPolicy, is_proven_absent
from gpuherd.domain.errors import CloudError, MachineGone, StaleWrite
from gpuherd.domain.orphans.orphan import (
    COLLECTOR,
    LEAVING_PHASES,
    Orphan,
    OrphanEnding,
    OrphanVerdict,
    is_confirmed,
    is_fulfilled,
    judge_machine,
    without_order,
)
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.instances import Instances
from gpuherd.ports.orphans import LedgerWrite, OrphanCandidate, Orphans
from gpuherd.usecases.cloud.catalogue import CatalogueCache, PriceList, price_list
from gpuherd.usecases.cloud.installation_alarm import InstallationAlarm
from gpuherd.usecases.orphans.events import OrphanEvents

log = structlog.get_logger()

# So many new lines are written in one transaction.
NEW_LINES_BATCH = 200
# So many machines that the lists miss are asked for at one look.
ABSENCE_CHECKS_MAX = 10


@dataclass(frozen=True, kw_only=True)
class UpdateOrphanLedger:
    """Brings the ledger up to date with a list; the records are read after it."""

    orphans: Orphans
    instances: Instances
    cloud: Cloud
    catalogue: CatalogueCache
    orphan_events: OrphanEvents
    alarm: InstallationAlarm
    clock: Clock
    settling: SettlingPolicy
    installation: str

    async def __call__(self, record: ListRecord) -> tuple[Orphan, ...]:
        """Return the lines that were open before and whose machine this list shows."""
        # guard: the ledger goes by the records as they are now
        candidates = await self.orphans.candidates()
        if not candidates:
            return ()
        prices = await price_list(self.catalogue)
        await self._open(candidates, record, prices)
        known = [it for it in candidates if it.orphan is not None and it.orphan.is_open]
        await self._close([it for it in known if not _is_listed(it)])
        judged = [self._judged(it, record, prices) for it in known if _is_listed(it)]
        written = [it if before == it else await self.write(it) for before, it in judged]
        return tuple(it for it in written if it is not None and it.is_open)

    async def write(self, it: Orphan) -> Orphan | None:
        """Write a line; None if somebody else changed it first: then the next list decides anew."""
        try:
            await self.orphans.save([LedgerWrite(it)])
        except StaleWrite:
            return None
        return replace(it, version=it.version + 1)

    async def _open(
        self, candidates: Sequence[OrphanCandidate], record: ListRecord, prices: PriceList
    ) -> None:
        entries = [
            await self._alarmed(it, candidate)
            for candidate in candidates
            if (it := self._new_entry(candidate, record, prices)) is not None
        ]
        # An event on an instance may lose against the instance's own pass, and must not take others along.
        alone = [[it] for it in entries if it.change is not None]
        together = [it for it in entries if it.change is None]
        batches = [
            together[start : start + NEW_LINES_BATCH] for start in range(0, len(together), NEW_LINES_BATCH)
        ]
        for batch in (*alone, *batches):
            try:
                await self.orphans.save(batch)
            except StaleWrite:
                # The next list is seconds away, and shows it again.
                continue
            for it in batch:
                self.orphan_events.log(it.orphan)

    def _new_entry(
        self, candidate: OrphanCandidate, record: ListRecord, prices: PriceList
    ) -> LedgerWrite | None:
        seen, known = candidate.sighting, candidate.orphan
        if (known is not None and known.is_open) or seen is None or seen.machine.phase in LEAVING_PHASES:
            return None
        finding = judge_machine(
            seen.machine, candidate.records, self.installation, seen.first_seen_at, self.settling
        )
        if finding is None:
            return None
        orphan = Orphan(
            machine=seen.machine,
            finding=finding,
            first_seen_at=record.finished_at,
            judged_at=record.finished_at,
            gpus_usd=_gpus_price(candidate, prices),
            disk_usd=prices.disk.hourly_usd(seen.machine.disk_gb),
            changed_at=seen.changed_at,
            version=known.version if known else 0,
        )
        return self.orphan_events.detected(orphan, candidate.records)

    async def _alarmed(self, entry: LedgerWrite, candidate: OrphanCandidate) -> LedgerWrite:
        """Raise the alarm if a new line is of a machine that a second database must have made."""
        if entry.orphan.verdict is not OrphanVerdict.UNRECORDED or candidate.orphan is not None:
            return entry
        named = candidate.records.named
        attempts = () if named is None else await self.instances.attempts(named.id)
        # guard: a second user of our id raises the alarm
        if not await self.alarm.is_proof(entry.orphan.machine, attempts):
            return entry
        # Before the line is written: should we die in between, the next list raises it again.
        return self.orphan_events.with_alarm(entry, await self.alarm.raise_for(entry.orphan.machine))

    def _judged(
        self, candidate: OrphanCandidate, record: ListRecord, prices: PriceList
    ) -> tuple[Orphan, Orphan]:
        """Return an open line as it was, and as this list and the records show it."""
        known = candidate.orphan
        assert known is not None, "only known lines are judged anew"
        finding = judge_machine(
            known.machine, candidate.records, self.installation, known.first_seen_at, self.settling
        )
        if finding is None:
            return known, self._ended(known, OrphanEnding.CLAIMED)
        it = replace(known, finding=finding)
        if finding.verdict is not known.verdict:
            it = replace(it, judged_at=record.finished_at, confirmed_at=None)
            # Ours was made for another verdict; a person's stands.
            it = without_order(it) if it.ordered_by == COLLECTOR else it
        elif it.confirmed_at is None and is_confirmed(it.judged_at, record.started_at, self.settling):
            it = replace(it, confirmed_at=record.finished_at)
        it = replace(it, disk_usd=prices.disk.hourly_usd(it.machine.disk_gb))
        if it.gpus_usd is None:
            it = replace(it, gpus_usd=_gpus_price(candidate, prices))
        return known, without_order(it) if is_fulfilled(it) else it

    async def _close(self, missing: Sequence[OrphanCandidate]) -> None:
        questions = 0
        for candidate in missing:
            known, seen = candidate.orphan, candidate.sighting
            assert known is not None, "only known lines are closed"
            if seen is not None and not is_proven_absent(seen, None, (), self.settling):
                continue
            # What shall be removed is gone when the cloud says so, too. Of others the lists' word is enough:
            # should one show again, it is opened again.
            if seen is None or known.order is not None or known.verdict is OrphanVerdict.SURPLUS:
                questions += 1
                if questions > ABSENCE_CHECKS_MAX or not await self._is_confirmed_gone(known.cloud_id):
                    continue
            await self.write(self._ended(known, OrphanEnding.GONE))

    async def _is_confirmed_gone(self, cloud_id: str) -> bool:
        try:
            return (await self.cloud.get_machine(cloud_id)).phase is Phase.ABSENT
        except MachineGone:
            return True
        except CloudError:
            return False

    def _ended(self, it: Orphan, how: OrphanEnding) -> Orphan:
        log.info("orphan.ended", cloud_id=it.cloud_id, ending=how.value, order=it.order)
        return replace(it, gone_at=self.clock.now(), ending=how)


def _is_listed(candidate: OrphanCandidate) -> bool:
    seen = candidate.sighting
    return seen is not None and seen.missing_since is None and seen.machine.phase is not Phase.ABSENT


def _gpus_price(candidate: OrphanCandidate, prices: PriceList) -> Decimal | None:
    """Return what its GPUs cost while it runs: what we agreed to pay, or else today's price."""
    attempt, seen = candidate.records.attempt, candidate.sighting
    if seen is None:
        return None
    if attempt is not None:
        return attempt.gpu_hourly_usd * max(seen.machine.gpu_num, 1)
    return prices.gpus_hourly_usd(seen.machine)
