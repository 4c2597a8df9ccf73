"""Replicas: what this process shares with others on the same database, and what it must renew for that."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gpuherd import __version__
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.duties import SqlDuties, SqlReplicas
from gpuherd.adapters.sql.fenced import FencedDatabase
from gpuherd.clock import Clock, Ids
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.entrypoints.worker.loops import Loop
from gpuherd.ports.duties import Replica
from gpuherd.usecases.duty import RENEW_S, WATCH, Duty, SharedDuty, SoleDuty
from gpuherd.usecases.roster import API, SIGN_S, Roster


async def _nothing() -> None:
    """Of one who is alone."""


@dataclass(frozen=True)
class Membership:
    """One process's place among the replicas; of one who is alone by default."""

    # The duty to watch the cloud, and whatever else only one replica may do.
    watch: Duty
    # A database that refuses what is written without that duty.
    fenced: Database | FencedDatabase
    # Counts those who take turns.
    workers: Callable[[], int] = lambda: 1
    present: Callable[[], Sequence[Replica]] = tuple
    # To be renewed for as long as work is taken.
    loops: tuple[Loop, ...] = ()
    # To be renewed until the last turn has ended.
    keepers: tuple[Loop, ...] = ()
    join: Callable[[], Awaitable[None]] = _nothing
    # Hands the duty over.
    step_back: Callable[[], Awaitable[None]] = _nothing
    sign_off: Callable[[], Awaitable[None]] = _nothing

    def on_duty(self, work: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
        """Return the same work, left undone by whoever is not on duty."""

        async def if_on_duty() -> object:
            return await work() if self.watch.is_held() else None

        return if_on_duty


def join_replicas(database: Database, role: str, clock: Clock, ids: Ids) -> Membership:
    """Return this process's place. A file of our own is locked, so there we are alone."""
    if database.is_sqlite:
        return Membership(SoleDuty(), database)
    now, its_id = clock.now(), ids.new("rep_")
    me = Replica(its_id, role, __version__, f"{socket.gethostname()}:{os.getpid()}", now, now)
    roster = Roster(SqlReplicas(database), me, clock)
    watch = SharedDuty(SqlDuties(database, clock), WATCH, its_id, clock)

    async def join() -> None:
        await roster.sign()
        if role != API:
            await watch.renew()

    async def step_back() -> None:
        # Should it fail, the term ends by itself.
        with contextlib.suppress(StoreUnavailable):
            await watch.lay_down()

    async def sign_off() -> None:
        with contextlib.suppress(StoreUnavailable):
            await roster.sign_off()

    return Membership(
        watch=watch,
        fenced=FencedDatabase(database, WATCH, lambda: watch.fence),
        workers=roster.workers,
        present=roster.present,
        loops=() if role == API else (Loop("watch", RENEW_S, watch.renew, clock),),
        keepers=(Loop("roster", SIGN_S, roster.sign, clock),),
        join=join,
        step_back=step_back,
        sign_off=sign_off,
    )
