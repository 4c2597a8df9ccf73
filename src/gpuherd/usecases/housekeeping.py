"""Prune: forget claims after a week, and instances a week after they were deleted. The audit log stays.

Events go with their instance; those of the account after a month, as lines about machines that are gone. That
a session was signed out of is of no interest once it would have ended anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.ports.keys import Retention

KEPT = timedelta(days=7)
ACCOUNT_EVENTS_KEPT = timedelta(days=30)
# A clock may be set back, and must not bring to life what was signed out of.
SESSIONS_KEPT = timedelta(days=1)


@dataclass(frozen=True)
class PruneRecords:
    """Runs every few minutes."""

    retention: Retention
    clock: Clock

    async def __call__(self) -> int:
        """Return how many claims, instances, events of the account and ended sessions were forgotten."""
        now = self.clock.now()
        claims = await self.retention.prune_claims(now - KEPT)
        instances = await self.retention.prune_instances(now - KEPT)
        events = await self.retention.prune_account_events(now - ACCOUNT_EVENTS_KEPT)
        return claims + instances + events + await self.retention.prune_sessions(now - SESSIONS_KEPT)
