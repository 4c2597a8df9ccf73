"""Replicas on one PostgreSQL.

Registration and leadership, limits and breaker for the whole installation, and change notifications.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from gpuherd import __version__
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.listen_notify import ChangeListener
from gpuherd.adapters.sql.postgres_connection import connect_async
from gpuherd.adapters.stores.leader_fence import FencedDatabase
from gpuherd.adapters.stores.replica_store import SqlLeaderLeases, SqlReplicas
from gpuherd.adapters.stores.shared_limit_store import SqlBreakerStore, SqlSharedLimits
from gpuherd.bootstrap.background_loops import Loop
from gpuherd.bootstrap.build_cloud import CloudLink
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.replica_port import Replica
from gpuherd.resilience.shared_rate_limit import SharedLimiter
from gpuherd.settings import Settings
from gpuherd.usecases.events.stream_events import ChangeHub
from gpuherd.usecases.service.leader_election import (
    API,
    HEARTBEAT_INTERVAL_S,
    LEADER_LEASE_NAME,
    LEADER_RENEW_S,
    AlwaysLeader,
    LeaderLease,
    Leadership,
    ReplicaRegistry,
    StoreHistory,
)
from gpuherd.usecases.service.shared_breaker import SharedBreaker


async def _no_replicas() -> None:
    """Of one who is alone."""


def _no_term() -> None:
    """Of one who is always the leader."""


@dataclass(frozen=True)
class Membership:
    """One process's place among the replicas; of one who is alone by default."""

    # The leader watches the cloud, and does whatever else only one replica may do.
    leadership: Leadership
    # A database that refuses writes without the leader's fencing token.
    fenced: Database | FencedDatabase
    # Counts those who take turns.
    workers: Callable[[], int] = lambda: 1
    live_replicas: Callable[[], Sequence[Replica]] = tuple
    # To be renewed for as long as work is taken.
    loops: tuple[Loop, ...] = ()
    # To be renewed until the last job has ended.
    renewal_loops: tuple[Loop, ...] = ()
    join: Callable[[], Awaitable[None]] = _no_replicas
    # Gives leadership up.
    resign: Callable[[], Awaitable[None]] = _no_replicas
    deregister: Callable[[], Awaitable[None]] = _no_replicas
    # Ends the term at once, because the database has lost something.
    forget: Callable[[], None] = _no_term

    def leader_only(self, work: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
        """Return the same work, skipped unless this replica is the leader."""

        async def if_leader() -> object:
            return await work() if self.leadership.is_leader() else None

        return if_leader


def join_replicas(database: Database, role: str, clock: Clock, ids: Ids) -> Membership:
    """Return this process's place. A file of our own is locked, so there we are alone."""
    if database.is_sqlite:
        return Membership(AlwaysLeader(), database)
    now, replica_id = clock.now(), ids.new("rep_")
    this_replica = Replica(replica_id, role, __version__, f"{socket.gethostname()}:{os.getpid()}", now, now)
    replica_registry = ReplicaRegistry(SqlReplicas(database), this_replica, clock)
    leadership = LeaderLease(SqlLeaderLeases(database, clock), LEADER_LEASE_NAME, replica_id, clock)

    async def join() -> None:
        await replica_registry.heartbeat()
        if role != API:
            await leadership.renew()

    async def resign() -> None:
        # Should it fail, the term ends by itself.
        with contextlib.suppress(StoreUnavailable):
            await leadership.release()

    async def deregister() -> None:
        with contextlib.suppress(StoreUnavailable):
            await replica_registry.deregister()

    return Membership(
        leadership=leadership,
        fenced=FencedDatabase(database, LEADER_LEASE_NAME, lambda: leadership.fencing_token),
        workers=replica_registry.workers,
        live_replicas=replica_registry.live_replicas,
        loops=() if role == API else (Loop("watch", LEADER_RENEW_S, leadership.renew, clock),),
        renewal_loops=(Loop("replica_heartbeat", HEARTBEAT_INTERVAL_S, replica_registry.heartbeat, clock),),
        join=join,
        resign=resign,
        deregister=deregister,
        forget=leadership.forget,
    )


log = structlog.get_logger()


# So long another replica may still make calls that one has found to be in vain.
BREAKER_SYNC_INTERVAL_S = 1.0


# So late the metrics of one who makes no calls show that all were told to slow down.
RATE_REFRESH_INTERVAL_S = 5.0


def share_limits(
    link: CloudLink,
    database: Database,
    clock: Clock,
    workers: Callable[[], int],
    may_probe: Callable[[], bool],
    history: StoreHistory,
) -> list[Loop]:
    """Make the link's limits those of all replicas; return the loops that this needs. Alone, it needs none.

    `workers` says how many replicas make calls now, `may_probe` whether this one may find out how a cloud is
    that was found sick.
    """
    if database.is_sqlite:
        return []
    return [
        *_share_rates(link, database, clock),
        *_share_breaker(link, database, clock, workers, may_probe, history),
    ]


def _share_rates(link: CloudLink, database: Database, clock: Clock) -> list[Loop]:
    budgets, loops = SqlSharedLimits(database), []
    for name, limit in link.limits.items():
        limiter = SharedLimiter(
            clock,
            limit,
            partial(budgets.lease, name, limit),
            partial(budgets.throttle, name, limit),
            partial(budgets.look, name, limit),
            partial(_log_unavailable, name),
        )
        link.limiters[name].share_limit(limiter)
        loops.append(Loop(f"rate-{name}", RATE_REFRESH_INTERVAL_S, limiter.look, clock))
    return loops


def _log_unavailable(name: str, error: Exception) -> None:
    log.warning("shared_limit.unavailable", budget=name, error=type(error).__name__)


def _share_breaker(
    link: CloudLink,
    database: Database,
    clock: Clock,
    workers: Callable[[], int],
    may_probe: Callable[[], bool],
    history: StoreHistory,
) -> list[Loop]:
    if link.breaker is None:
        return []
    share = SharedBreaker(link.breaker, SqlBreakerStore(database))
    link.breaker.share(workers, may_probe, share.changed)
    history.subscribe(share.forget)
    return [Loop("breaker", BREAKER_SYNC_INTERVAL_S, share, clock)]


def listen_for_changes(
    settings: Settings, database: Database, hub: ChangeHub, clock: Clock
) -> Callable[[], Awaitable[None]]:
    """Begin to listen; return how to end it. On a file of our own there is nobody to hear."""
    if database.is_sqlite:
        return _not_listening
    listener = ChangeListener(
        partial(connect_async, settings.database),
        database.sender,
        hub.changed,
        hub.everything_changed,
        clock,
        random.SystemRandom(),
    )
    listener.start()
    return listener.stop


async def _not_listening() -> None:
    """Nobody listens, so nobody ends."""
