"""Reprice: let every instance cost what its disk costs by the tariff in force, at the start of a service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from gpuherd.domain.cloud.disk_tariff import DiskTariff
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.ports.flags import Flags
from gpuherd.ports.instances import Change, InstanceQuery, Instances

# The tariff by which the instances were priced last; none in a database of a version that knew no disks.
DISK_TARIFF = "disk_tariff"
WRITE_TRIES_MAX = 5
# Written together, they share commits.
AT_ONCE = 100
ALIVE = tuple(it for it in Status if it is not Status.DELETED)


@dataclass(frozen=True, kw_only=True)
class RepriceDisks:
    """What a key's instances cost is summed up by the store, so their rows must know the price."""

    instances: Instances
    flags: Flags
    disk: DiskTariff

    async def __call__(self) -> None:
        """Price what is alive anew if the tariff is another one; what has ended keeps its price."""
        tariff = tariff_text(self.disk)
        if await self.flags.get(DISK_TARIFF) == tariff:
            return
        cursor: str | None = None
        while True:
            # Page by page: a start has no use for all of them at once in memory.
            page = await self.instances.page(InstanceQuery(statuses=ALIVE, limit=AT_ONCE, cursor=cursor))
            wrong = [it.id for it in page.instances if self._may_be_wrong(it)]
            await asyncio.gather(*map(self._reprice, wrong))
            if (cursor := page.next_cursor) is None:
                break
        # Last: should we die before, the next start begins anew.
        await self.flags.put(DISK_TARIFF, tariff)

    def _may_be_wrong(self, it: Instance) -> bool:
        """Tell whether its row may hold another price: all but those whose disk is free, then and now."""
        return bool(it.disk_hourly_usd or self.disk.hourly_usd(it.wish.disk_gb))

    async def _reprice(self, instance_id: str) -> None:
        for _ in range(WRITE_TRIES_MAX):
            it = await self.instances.get(instance_id)
            repriced = replace(it, disk_hourly_usd=self.disk.hourly_usd(it.wish.disk_gb))
            try:
                await self.instances.update(Change(repriced))
            except StaleWrite:
                # Another replica's pass was faster.
                continue
            return


def tariff_text(disk: DiskTariff) -> str:
    """Return a tariff as it is remembered."""
    return f"{disk.usd_per_gb_day.normalize():f} above {disk.free_gb} GB"
