"""Hears what other replicas on the same PostgreSQL database have changed, at once.

Nothing rests on it: whoever waits also looks for himself from time to time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from gpuherd.adapters.sql.change_notice import CHANNEL, read_notice
from gpuherd.clock import Chance, Clock

log = structlog.get_logger()

FIRST_PAUSE_S, PAUSE_MAX_S = 0.25, 10.0
# A connection that the network has forgotten looks like one on which nothing happens.
CHECK_S = 15.0
ANSWER_S = 5.0


class ChangeListener:
    """One connection that listens, made anew whenever it is lost."""

    def __init__(
        self,
        # Of asyncpg, which has no types.
        connect: Callable[[], Awaitable[Any]],
        own: str,
        changed: Callable[[Sequence[str]], None],
        everything_changed: Callable[[], None],
        clock: Clock,
        chance: Chance,
    ):
        self._connect = connect
        self._own = own
        self._changed = changed
        self._everything_changed = everything_changed
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="change-listener")

    async def stop(self) -> None:
        """End it. Stopping twice, or before a start, is fine."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:
                # Their driver has many words for a connection that is lost, and none of them is worth an end.
                if self._failures == 0:
                    log.warning("changes.listener_lost", error=type(error).__name__)
            pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self._failures, 10), PAUSE_MAX_S)
            self._failures += 1
            await self._clock.sleep(pause_s * self._chance.uniform(0.5, 1.0))

    async def _listen(self) -> None:
        connection = await self._connect()
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._heard)
            self._failures = 0
            # Nobody has told us what happened before this moment.
            self._everything_changed()
            while not await self._rings(lost):
                await connection.execute("SELECT 1", timeout=ANSWER_S)
            raise ConnectionResetError
        finally:
            connection.terminate()

    async def _rings(self, lost: asyncio.Event) -> bool:
        """Wait a while; tell whether the connection was lost meanwhile."""
        tasks = (asyncio.ensure_future(lost.wait()), asyncio.ensure_future(self._clock.sleep(CHECK_S)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return lost.is_set()

    def _heard(self, connection: object, pid: int, channel: str, notice: str) -> None:
        sender, instance_ids = read_notice(notice)
        # Our own changes we knew before they were told.
        if sender != self._own:
            self._changed(instance_ids)
