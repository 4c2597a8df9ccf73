"""Leader election.

A lease that one replica holds and renews, and a fencing token that every write under it carries, so that a
leader that slept through the end of its term is refused.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Protocol

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.replicas import LeaderLeases

log = structlog.get_logger()

# The observer, the collector, the sweep and all clearing away.
LEADER_LEASE_NAME = "watch"
LEASE_TERM = timedelta(seconds=10)
LEASE_RENEW_S = 2.5


class Leadership(Protocol):
    """What work needs to know that only the leader does."""

    @property
    def fencing_token(self) -> int:
        """The fencing token of the present term; what was read under another one may be out of date."""
        ...

    def is_leader(self) -> bool:
        """Tell whether we hold it, as far as we know."""
        ...

    def acquired(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Be the leader for as long as the context lasts, by force if another replica is."""
        ...


class AlwaysLeader:
    """Of a process that is alone with its database: always the leader."""

    fencing_token = 0

    def is_leader(self) -> bool:
        return True

    @contextlib.asynccontextmanager
    async def acquired(self) -> AsyncIterator[None]:
        yield


class LeaderLease:
    """The lease of one replica among others."""

    def __init__(self, duties: LeaderLeases, name: str, holder: str, clock: Clock):
        self._duties = duties
        self._name = name
        self._holder = holder
        self._clock = clock
        self._fencing_token = 0
        self._until_s = -math.inf
        self._must_begin_anew = False

    @property
    def fencing_token(self) -> int:
        return self._fencing_token

    def is_leader(self) -> bool:
        return self._clock.boottime() < self._until_s

    async def renew(self) -> bool:
        """Acquire the lease if it is free, renew it if it is ours; tell whether we are the leader now."""
        # Our term ends no later than the one in the database, which begins after this.
        began_s, had = self._clock.boottime(), self.is_leader()
        await self._begin_anew()
        fencing_token = await self._duties.acquire_or_renew(self._name, self._holder, LEASE_TERM)
        if fencing_token is None:
            self._until_s = -math.inf
            if had:
                log.warning("leadership.lost", leadership=self._name, fencing_token=self._fencing_token)
            return False
        self._begin(fencing_token, began_s)
        return True

    def forget(self) -> None:
        """End the term here, because the store has lost something; the next one has a new token."""
        self._until_s = -math.inf
        self._must_begin_anew = True

    async def release(self) -> None:
        """Release the lease, so that no replica has to wait for the end of the term."""
        self._until_s = -math.inf
        await self._duties.release(self._name, self._holder)

    @contextlib.asynccontextmanager
    async def acquired(self) -> AsyncIterator[None]:
        if self.is_leader():
            yield
            return
        began_s = self._clock.boottime()
        await self._begin_anew()
        self._begin(await self._duties.force_acquire(self._name, self._holder, LEASE_TERM), began_s)
        try:
            yield
        finally:
            # Should that fail, the term ends by itself.
            with contextlib.suppress(StoreUnavailable):
                await self.release()

    async def _begin_anew(self) -> None:
        """Let go of a term that the store may have forgotten: what is free is taken under a new token."""
        if self._must_begin_anew:
            await self._duties.release(self._name, self._holder)
            self._must_begin_anew = False

    def _begin(self, fencing_token: int, began_s: float) -> None:
        if fencing_token != self._fencing_token:
            log.info("leadership.acquired", leadership=self._name, fencing_token=fencing_token)
        self._fencing_token = fencing_token
        self._until_s = began_s + LEASE_TERM.total_seconds()
