"""List orphans: every open line of the ledger, and whether the collector is braked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuherd.domain.orphans.orphan import Orphan, OrphanVerdict
from gpuherd.ports.flags import Flags
from gpuherd.ports.orphans import Orphans
from gpuherd.usecases.cloud.installation_alarm import INSTALLATION_SHARED
from gpuherd.usecases.orphans.collect import COLLECTOR_BRAKED


@dataclass(frozen=True)
class ListOrphans:
    """All of them, or those of one verdict."""

    orphans: Orphans
    flags: Flags

    async def __call__(self, verdict: OrphanVerdict | None = None) -> Sequence[Orphan]:
        return [it for it in await self.orphans.open() if verdict in (None, it.verdict)]

    async def braked(self) -> str | None:
        """Return why nothing is removed by itself just now, None if the collector runs."""
        return await self.flags.first(INSTALLATION_SHARED, COLLECTOR_BRAKED)
