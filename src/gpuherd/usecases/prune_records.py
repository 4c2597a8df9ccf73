"""Prune: forget claims after a week, and instances a week after they were deleted. The audit log stays.

Events go with their instance; those of the account after a month, as lines about machines that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.ports.keys import Retention

KEPT = timedelta(days=7)
ACCOUNT_EVENTS_KEPT = timedelta(days=30)


@dataclass(frozen=True)
class PruneRecords:
    """Runs every few minutes."""

    retention: Retention
    clock: Clock

    async def __call__(self) -> int:
        """Return how many claims, instances and events of the account were forgotten."""
        now = self.clock.now()
        claims = await self.retention.prune_claims(now - KEPT)
        instances = await self.retention.prune_instances(now - KEPT)
        return claims + instances + await self.retention.prune_account_events(now - ACCOUNT_EVENTS_KEPT)
