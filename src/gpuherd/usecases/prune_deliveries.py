"""Prune: forget the webhooks that nobody will ask for any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.ports.webhooks import DeliveryLog

DELIVERED_KEPT = timedelta(days=7)
# Dead letters wait for a person to come back.
DEAD_KEPT = timedelta(days=30)


@dataclass(frozen=True)
class PruneDeliveries:
    """Runs every few minutes."""

    log: DeliveryLog
    clock: Clock

    async def __call__(self) -> int:
        """Return how many were forgotten."""
        now = self.clock.now()
        return await self.log.prune(now - DELIVERED_KEPT, now - DEAD_KEPT)
