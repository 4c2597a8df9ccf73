"""The registry of replicas: each sends a heartbeat every few seconds, and sees which others did."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.ports.replicas import Replica, Replicas

# A replica without a heartbeat for this long counts as gone.
HEARTBEAT_TIMEOUT = timedelta(seconds=10)
REPLICA_RETENTION = timedelta(days=1)
HEARTBEAT_INTERVAL_S = 2.5

ALL, API, WORKER = "all", "api", "worker"


class ReplicaRegistry:
    """Sends the heartbeat of this replica, and remembers which others sent theirs."""

    def __init__(self, replicas: Replicas, me: Replica, clock: Clock):
        self._replicas = replicas
        self._me = me
        self._clock = clock
        self._live: tuple[Replica, ...] = (me,)

    async def heartbeat(self) -> None:
        """Send a heartbeat, and read those of the others."""
        now = self._clock.now()
        signed = await self._replicas.heartbeat(replace(self._me, seen_at=now), now - REPLICA_RETENTION)
        self._live = tuple(it for it in signed if it.seen_at > now - HEARTBEAT_TIMEOUT)

    async def deregister(self) -> None:
        """Say that we go."""
        await self._replicas.deregister(self._me.id)

    def live_replicas(self) -> tuple[Replica, ...]:
        """Return who was there when we signed last, ourselves among them."""
        return self._live

    def workers(self) -> int:
        """Count those who take turns: never less than one."""
        return max(1, sum(it.role != API for it in self._live))
