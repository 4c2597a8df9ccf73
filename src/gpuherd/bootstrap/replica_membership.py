"""Replicas on one PostgreSQL.

Registration, leadership, and change notifications.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpuherd import __version__
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.listen_notify import ChangeListener
from gpuherd.adapters.sql.postgres_connection import connect_async
from gpuherd.adapters.stores.leader_fence import FencedDatabase
from gpuherd.adapters.stores.replica_store import SqlLeaderLeases, SqlReplicas
from gpuherd.bootstrap.background_loops import Loop
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.replica_port import Replica
from gpuherd.settings import Settings
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.service.leader_election import (
    API,
    HEARTBEAT_INTERVAL_S,
    LEADER_LEASE_NAME,
    LEADER_RENEW_S,
    AlwaysLeader,
    LeaderLease,
    Leadership,
    ReplicaRegistry,
)


async def _no_replicas() -> None:
    """Do nothing: this process has no other replicas."""


def _no_term() -> None:
    """Do nothing: this process is always the leader."""


@dataclass(frozen=True)
class Membership:
    """The place of one process among the replicas. By default the process is the only one."""

    # The leader watches the cloud, and does all other work that only one replica may do.
    leadership: Leadership
    # A database that refuses writes without the leader's fencing token.
    fenced: Database | FencedDatabase
    # Counts the replicas that share the call rate of the cloud.
    workers: Callable[[], int] = lambda: 1
    live_replicas: Callable[[], Sequence[Replica]] = tuple
    # These loops run while the process takes work.
    loops: tuple[Loop, ...] = ()
    # These loops run until the last job has ended.
    renewal_loops: tuple[Loop, ...] = ()
    join: Callable[[], Awaitable[None]] = _no_replicas
    # Gives leadership up.
    resign: Callable[[], Awaitable[None]] = _no_replicas
    deregister: Callable[[], Awaitable[None]] = _no_replicas
    # Ends the term at once, because the database has lost data.
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
