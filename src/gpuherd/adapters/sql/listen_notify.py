"""LISTEN and NOTIFY between replicas on one PostgreSQL database: which instances a transaction has changed.

The notice goes out right after the commit, and not with it: PostgreSQL lets commits that notify through one
at a time, each until it is on the disk. It only makes things quick: should this process die in between, or
the listener be deaf for a while, the others find out when what they remember has become too old.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog

from gpuherd.domain.backoff import exponential_delay
from gpuherd.ports.clock_port import Clock, Random
from gpuherd.resilience.concurrency import end_task

if TYPE_CHECKING:
    from psycopg import AsyncConnection

CHANNEL = "gpuherd_changes"


# PostgreSQL takes less than 8000 bytes.
NOTICE_BYTES_MAX = 7000


_CHANGED = "gpuherd_changed"


# Not durable, so that no caller waits for the disk because of it.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


log = structlog.get_logger()


def record_change(connection: sa.Connection, instance_id: str) -> None:
    """Have the others told of this one, should the transaction be committed."""
    if connection.dialect.name == "postgresql":
        connection.info.setdefault(_CHANGED, []).append(instance_id)


def clear_changes(connection: sa.Connection) -> None:
    """Forget what an earlier transaction on this connection did not come to say."""
    connection.info.pop(_CHANGED, None)


def take_changes(connection: sa.Connection) -> list[str]:
    """Return what was noted on this connection."""
    changed: list[str] = connection.info.pop(_CHANGED, [])
    return changed


def notify_changes(connection: sa.Connection, sender: str, changed: Iterable[str]) -> None:
    """Say all at once, after the commit: what was written stays written, whatever happens here."""
    driver: Any = connection.connection.dbapi_connection
    try:
        for notice in encode_notices(sender, changed):
            driver.execute(_NOTIFY, [CHANNEL, notice])
    except connection.dialect.loaded_dbapi.Error as error:
        log.warning("changes.notify_failed", error=type(error).__name__)
        if driver.closed:
            connection.invalidate()


def encode_notices(sender: str, instance_ids: Iterable[str]) -> Iterator[str]:
    """Return notices that PostgreSQL will take, each with as many ids as fit."""
    words, size = [sender], len(sender)
    for instance_id in dict.fromkeys(instance_ids):
        if size + 1 + len(instance_id) > NOTICE_BYTES_MAX:
            yield " ".join(words)
            words, size = [sender], len(sender)
        words.append(instance_id)
        size += 1 + len(instance_id)
    if len(words) > 1:
        yield " ".join(words)


def decode_notice(notice: str) -> tuple[str, list[str]]:
    """Return who has changed which instances."""
    sender, *instance_ids = notice.split(" ")
    return sender, instance_ids


log = structlog.get_logger()
FIRST_PAUSE_S, PAUSE_MAX_S = 0.25, 10.0


# A connection that the network has forgotten looks like one on which nothing happens.
KEEPALIVE_S = 15.0


KEEPALIVE_TIMEOUT_S = 5.0


class ChangeListener:
    """One connection that listens, made anew whenever it is lost."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AsyncConnection]],
        own_sender: str,
        changed: Callable[[Sequence[str]], None],
        everything_changed: Callable[[], None],
        clock: Clock,
        rng: Random,
    ):
        self._connect = connect
        self._own_sender = own_sender
        self._changed = changed
        self._everything_changed = everything_changed
        self._clock = clock
        self._rng = rng
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="change-listener")

    async def stop(self) -> None:
        """End it. Stopping twice, or before a start, is fine."""
        await end_task(self._task)
        self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:
                # Their driver has many words for a connection that is lost, and none of them is worth an end.
                if self._failures == 0:
                    log.warning("changes.listener_lost", error=type(error).__name__)
            self._failures += 1
            await self._clock.sleep(exponential_delay(self._failures, FIRST_PAUSE_S, PAUSE_MAX_S, self._rng))

    async def _listen(self) -> None:
        connection = await self._connect()
        try:
            await connection.execute(f"LISTEN {CHANNEL}")
            self._failures = 0
            # Changes before this moment were not announced to us.
            self._everything_changed()
            try:
                while True:
                    async for notice in connection.notifies(timeout=KEEPALIVE_S):
                        self._on_notice(notice.payload)
                    async with asyncio.timeout(KEEPALIVE_TIMEOUT_S):
                        await connection.execute("SELECT 1")
            finally:
                # Nor are those from now on; and what takes the server's place may have lost some.
                self._everything_changed()
        finally:
            await connection.close()

    def _on_notice(self, notice: str) -> None:
        sender, instance_ids = decode_notice(notice)
        # Our own changes we knew before they were told.
        if sender != self._own_sender:
            self._changed(instance_ids)
