"""Roster: which replicas are there, by their own word of some seconds ago."""

from __future__ import annotations

from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.domain.copying import replace
from gpuherd.ports.duties import Replica, Replicas

# Who has not signed for this long is not there any more.
PRESENT = timedelta(seconds=10)
KEPT = timedelta(days=1)
SIGN_S = 2.5

ALL, API, WORKER = "all", "api", "worker"
ROLES = (ALL, API, WORKER)


class Roster:
    """Signs for this replica again and again, and remembers who else did."""

    def __init__(self, replicas: Replicas, me: Replica, clock: Clock):
        self._replicas = replicas
        self._me = me
        self._clock = clock
        self._present: tuple[Replica, ...] = (me,)

    async def sign(self) -> None:
        """Sign, and see who else is there."""
        now = self._clock.now()
        signed = await self._replicas.sign(replace(self._me, seen_at=now), now - KEPT)
        self._present = tuple(it for it in signed if it.seen_at > now - PRESENT)

    async def sign_off(self) -> None:
        """Say that we go."""
        await self._replicas.sign_off(self._me.id)

    def present(self) -> tuple[Replica, ...]:
        """Return who was there when we signed last, ourselves among them."""
        return self._present

    def workers(self) -> int:
        """Count those who take turns: never less than one."""
        return max(1, sum(it.role != API for it in self._present))
