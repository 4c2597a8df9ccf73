"""Holds the database's writer in the middle of a transaction, so that a test decides what shares a commit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database

# Only a guard against a test that would hang; nothing is measured against it.
PATIENCE_S = 20

note = sa.table("note", sa.column("text"))


class Held:
    """The writer stands still until `release`."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def work(self, connection: sa.Connection) -> None:
        connection.execute(sa.insert(note).values(text="held"))
        self._reached.set()
        assert self._released.wait(PATIENCE_S)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_S)

    def release(self) -> None:
        self._released.set()


@asynccontextmanager
async def held_writer(database: Database) -> AsyncIterator[Held]:
    """Let everything that is written inside the block wait, and go together at its end."""
    held = Held()
    holder = asyncio.create_task(database.write(held.work))
    await held.reached()
    try:
        yield held
        # Give every task that was made in the block its chance to hand its work over.
        await asyncio.sleep(0)
    finally:
        held.release()
        await holder


def writing(text: str) -> Callable[[sa.Connection], str]:
    """Work that writes one row and returns its text."""

    def work(connection: sa.Connection) -> str:
        connection.execute(sa.insert(note).values(text=text))
        return text

    return work


async def texts(database: Database) -> list[str]:
    """Return what is committed, in the order in which it was written."""
    return await database.read(lambda c: [row.text for row in c.execute(sa.select(note))])


def count(database: Database, what: str) -> list[Any]:
    """Return a list that grows with each `begin`, `commit` or `rollback` of the writer."""
    seen: list[Any] = []
    sa.event.listen(database._write_engine, what, seen.append)
    return seen
