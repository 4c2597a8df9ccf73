"""List the account's network volumes."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.domain.costs.bill import StorageVolume
from gpuherd.ports.costs import ProviderBilling
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.costs.leftovers import ALL


@dataclass(frozen=True)
class ListVolumes:
    """The use case; the list is the one that leftovers are read from."""

    billing: ProviderBilling
    cache: Cache[str, tuple[StorageVolume, ...]]

    async def __call__(self) -> tuple[StorageVolume, ...]:
        """Return them by name; at most some seconds old."""
        listed = await self.cache.get_or_load(ALL, self.billing.list_volumes)
        return tuple(sorted(listed, key=lambda it: (it.name, it.volume_id)))

    async def fresh(self) -> tuple[StorageVolume, ...]:
        """Return them as they are now."""
        self.cache.clear()
        return await self.billing.list_volumes()
