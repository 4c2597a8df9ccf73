"""Keep the ledger: open a line for each machine that no instance has, judge it anew, close it in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.copying import replace
from gpuherd.domain.errors import CloudError, MachineGone, StaleWrite
from gpuherd.domain.machine import Phase
from gpuherd.domain.orphan import (
    COLLECTOR,
    LEAVING,
    Ending,
    Orphan,
    OrphanVerdict,
    is_carried_out,
    is_confirmed,
    judge,
    without_order,
)
from gpuherd.domain.sighting import ListRecord, Patience, surely_absent
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.orphans import Entry, Orphans, Stray
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.orphan_news import OrphanNews
from gpuherd.usecases.price_list import PriceList, price_list

log = structlog.get_logger()

# So many new lines are written in one transaction.
BATCH = 200
# So many machines that the lists miss are asked for at one look.
ASKED = 10


@dataclass(frozen=True)
class KeepLedger:
    """Brings the ledger up to date with a list; the records are read after it."""

    orphans: Orphans
    cloud: Cloud
    catalogue: Catalogue
    news: OrphanNews
    clock: Clock
    patience: Patience
    installation: str

    async def __call__(self, record: ListRecord) -> tuple[Orphan, ...]:
        """Return the lines that were open before and whose machine this list shows."""
        strays = await self.orphans.strays()
        if not strays:
            return ()
        prices = await price_list(self.catalogue)
        await self._open(strays, record, prices)
        known = [it for it in strays if it.orphan is not None and it.orphan.is_open]
        await self._close([it for it in known if not _is_listed(it)])
        judged = [self._judged(it, record, prices) for it in known if _is_listed(it)]
        written = [it if before == it else await self.write(it) for before, it in judged]
        return tuple(it for it in written if it is not None and it.is_open)

    async def write(self, it: Orphan) -> Orphan | None:
        """Write a line; None if somebody else changed it first: then the next list decides anew."""
        try:
            await self.orphans.note([Entry(it)])
        except StaleWrite:
            return None
        return replace(it, version=it.version + 1)

    async def _open(self, strays: Sequence[Stray], record: ListRecord, prices: PriceList) -> None:
        entries = [it for stray in strays if (it := self._newcomer(stray, record, prices)) is not None]
        # An event on an instance may lose against the instance's own turn, and must not take others along.
        alone = [[it] for it in entries if it.change is not None]
        together = [it for it in entries if it.change is None]
        batches = [together[start : start + BATCH] for start in range(0, len(together), BATCH)]
        for batch in (*alone, *batches):
            try:
                await self.orphans.note(batch)
            except StaleWrite:
                # The next list is seconds away, and shows it again.
                continue
            for it in batch:
                self.news.log(it.orphan)

    def _newcomer(self, stray: Stray, record: ListRecord, prices: PriceList) -> Entry | None:
        seen, known = stray.sighting, stray.orphan
        if (known is not None and known.is_open) or seen is None or seen.machine.phase in LEAVING:
            return None
        finding = judge(seen.machine, stray.records, self.installation)
        if finding is None:
            return None
        orphan = Orphan(
            machine=seen.machine,
            finding=finding,
            first_seen_at=record.finished_at,
            judged_at=record.finished_at,
            running_usd=_price(stray, prices),
            changed_at=seen.changed_at,
            version=known.version if known else 0,
        )
        return self.news.detected(orphan, stray.records)

    def _judged(self, stray: Stray, record: ListRecord, prices: PriceList) -> tuple[Orphan, Orphan]:
        """Return an open line as it was, and as this list and the records show it."""
        known = stray.orphan
        assert known is not None, "only known lines are judged anew"
        finding = judge(known.machine, stray.records, self.installation)
        if finding is None:
            return known, self._ended(known, Ending.CLAIMED)
        it = replace(known, finding=finding)
        if finding.verdict is not known.verdict:
            it = replace(it, judged_at=record.finished_at, confirmed_at=None)
            # Ours was made for another verdict; a person's stands.
            it = without_order(it) if it.ordered_by == COLLECTOR else it
        elif it.confirmed_at is None and is_confirmed(it.judged_at, record.started_at, self.patience):
            it = replace(it, confirmed_at=record.finished_at)
        if it.running_usd is None:
            it = replace(it, running_usd=_price(stray, prices))
        return known, without_order(it) if is_carried_out(it) else it

    async def _close(self, missing: Sequence[Stray]) -> None:
        questions = 0
        for stray in missing:
            known, seen = stray.orphan, stray.sighting
            assert known is not None, "only known lines are closed"
            if seen is not None and not surely_absent(seen, None, (), self.patience):
                continue
            # What shall be removed is gone when the cloud says so, too. Of others the lists' word is enough:
            # should one show again, it is opened again.
            if seen is None or known.order is not None or known.verdict is OrphanVerdict.SURPLUS:
                questions += 1
                if questions > ASKED or not await self._is_denied(known.cloud_id):
                    continue
            await self.write(self._ended(known, Ending.GONE))

    async def _is_denied(self, cloud_id: str) -> bool:
        try:
            return (await self.cloud.get_machine(cloud_id)).phase is Phase.ABSENT
        except MachineGone:
            return True
        except CloudError:
            return False

    def _ended(self, it: Orphan, how: Ending) -> Orphan:
        log.info("orphan.ended", cloud_id=it.cloud_id, ending=how.value, order=it.order)
        return replace(it, gone_at=self.clock.now(), ending=how)


def _is_listed(stray: Stray) -> bool:
    seen = stray.sighting
    return seen is not None and seen.missing_since is None and seen.machine.phase is not Phase.ABSENT


def _price(stray: Stray, prices: PriceList) -> Decimal | None:
    """Return what a machine costs while it runs: what we agreed to pay, or else today's price."""
    attempt, seen = stray.records.attempt, stray.sighting
    if seen is None:
        return None
    if attempt is not None:
        return attempt.gpu_hourly_usd * max(seen.machine.gpu_num, 1)
    return prices.hourly_usd(seen.machine)
