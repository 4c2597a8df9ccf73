"""Leadership among replicas, their registry, and what the store has lost."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.replica_port import (
    Flags,
    LeaderLeases,
    Replica,
    Replicas,
)

log = structlog.get_logger()


# For the observer, the collector, the sweep and all pruning.
LEADER_LEASE_NAME = "watch"


LEASE_TERM = timedelta(seconds=10)
LEADER_RENEW_S = 2.5


class Leadership(Protocol):
    """What work of the leader needs to know about the leadership."""

    @property
    def fencing_token(self) -> int:
        """The fencing token of the present term. What was read under another token may be out of date."""
        ...

    def is_leader(self) -> bool:
        """Return True if this process is the leader, as far as it knows."""
        ...

    def acquired(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Be the leader while the context lasts, by force if another replica is."""
        ...


class AlwaysLeader:
    """The leadership of a process that is alone with its database: always the leader."""

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
        """Acquire a free lease, or renew our own; return True if this process is the leader now."""
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
        """End the term, because the store has lost commits. The next term has a new token."""
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
            # If this fails, the term ends by itself.
            with contextlib.suppress(StoreUnavailable):
                await self.release()

    async def _begin_anew(self) -> None:
        """Release a term that the store may have forgotten. The next term gets a new token."""
        if self._must_begin_anew:
            await self._duties.release(self._name, self._holder)
            self._must_begin_anew = False

    def _begin(self, fencing_token: int, began_s: float) -> None:
        if fencing_token != self._fencing_token:
            log.info("leadership.acquired", leadership=self._name, fencing_token=fencing_token)
        self._fencing_token = fencing_token
        self._until_s = began_s + LEASE_TERM.total_seconds()


# A replica without a heartbeat for this long counts as gone.
HEARTBEAT_TIMEOUT = timedelta(seconds=10)


REPLICA_RETENTION = timedelta(days=1)
HEARTBEAT_INTERVAL_S = 2.5
ALL, API, WORKER = "all", "api", "worker"


class ReplicaRegistry:
    """Sends the heartbeat of this replica, and remembers which replicas are live."""

    def __init__(self, replicas: Replicas, me: Replica, clock: Clock):
        self._replicas = replicas
        self._me = me
        self._clock = clock
        self._live: tuple[Replica, ...] = (me,)

    async def heartbeat(self) -> None:
        """Send a heartbeat, and read the heartbeats of the other replicas."""
        now = self._clock.now()
        signed = await self._replicas.heartbeat(replace(self._me, seen_at=now), now - REPLICA_RETENTION)
        self._live = tuple(it for it in signed if it.seen_at > now - HEARTBEAT_TIMEOUT)

    async def deregister(self) -> None:
        """Remove this replica from the registry."""
        await self._replicas.deregister(self._me.id)

    def live_replicas(self) -> tuple[Replica, ...]:
        """Return the replicas that were live at the last heartbeat, with this one."""
        return self._live

    def workers(self) -> int:
        """Return how many live replicas run jobs, at least one."""
        return max(1, sum(it.role != API for it in self._live))


HISTORY_FLAG = "store_history"


class StoreHistory:
    """Notices when the store has lost commits. One for each process, used in the event loop only."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._subscribers: list[Callable[[], None]] = []
        self._reloads: list[Callable[[], Awaitable[object]]] = []
        # The reloads that have not worked since the last loss.
        self._pending: list[Callable[[], Awaitable[object]]] = []
        # When the last loss was noticed.
        self._lost_at: datetime | None = None

    @property
    def lost_at(self) -> datetime | None:
        """When the last loss was noticed; None if there was none."""
        return self._lost_at

    def is_recent(self, within: timedelta) -> bool:
        """Return True if the last loss was noticed within this time."""
        return self._lost_at is not None and self._clock.now() - self._lost_at <= within

    def subscribe(self, forget: Callable[[], None]) -> None:
        """Call `forget` at each loss, before the next request is answered.

        `forget` must be quick and must not fail.
        """
        self._subscribers.append(forget)

    def subscribe_reload(self, reload: Callable[[], Awaitable[object]]) -> None:
        """Call `reload` soon after each loss, until it works."""
        self._reloads.append(reload)

    def declare_lost(self, reason: str) -> None:
        """Let all subscribers forget what they have read from the store."""
        self._lost_at = self._clock.now()
        self._pending = list(self._reloads)
        log.error(
            "database.history_lost",
            reason=reason,
            effect="everything remembered of it is read anew; nothing is rented before the account was seen",
        )
        for forget in self._subscribers:
            forget()

    async def reload(self) -> None:
        """Run the reloads that have not worked since the last loss. This runs every second."""
        while self._pending:
            pending = self._pending
            await pending[0]()
            del pending[0]

    async def compare(self, flags: Flags, identity: str | None) -> None:
        """Compare this history with the one that was in use before, and save its identity.

        This runs at the start and after a loss: processes that start later must know of the loss. A history
        without an identity (None) cannot be compared.
        """
        if identity is None:
            return
        stored = await flags.get(HISTORY_FLAG)
        before, _, lost_at = (stored or identity).partition(" ")
        if before != identity and self._lost_at is None:
            self.declare_lost(f"the database is {identity}, and was {before} when it was last used")
        elif lost_at and self._lost_at is None:
            self._lost_at = datetime.fromisoformat(lost_at)
        word = identity if self._lost_at is None else f"{identity} {self._lost_at.isoformat()}"
        if word != stored:
            await flags.put(HISTORY_FLAG, word)
