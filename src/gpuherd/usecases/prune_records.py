"""Prune: forget claims after a week, and instances a week after they were deleted. The audit log stays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.ports.keys import Retention

KEPT = timedelta(days=7)


@dataclass(frozen=True)
class PruneRecords:
    """Runs every few minutes."""

    retention: Retention
    clock: Clock

    async def __call__(self) -> int:
        """Return how many claims and instances were forgotten."""
        before = self.clock.now() - KEPT
        claims = await self.retention.prune_claims(before)
        return claims + await self.retention.prune_instances(before)
