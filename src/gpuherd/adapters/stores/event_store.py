"""The log of events and its watermark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.listen_notify import record_change
from gpuherd.adapters.sql.rental_tables import event, instance
from gpuherd.adapters.sql.service_tables import delivery
from gpuherd.adapters.stores import job_store
from gpuherd.adapters.stores.row_codec import delivery_row, event_of, event_row
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.event_port import (
    EVERYTHING,
    AccountEvent,
    EventFilter,
    EventPage,
    LoggedEvent,
)

# More at once than this is old history: it is not counted through, but waited out as one gap.
SCAN_LIMIT = 1000


RECHECK_S = 0.02
_NEWEST = sa.select(sa.func.coalesce(sa.func.max(event.c.id), 0))


_WRITERS = sa.text(
    "SELECT virtualtransaction FROM pg_locks"
    " WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND relation = 'event'::regclass"
)


@dataclass(frozen=True)
class InFlightWriters:
    """Transactions that were writing when `newest` was seen: only these can still bring a number below it."""

    newest: int
    transactions: frozenset[str]


@dataclass
class GapTracker:
    """Knows the event numbers. Each number up to `watermark` is in the log, or never will be."""

    watermark: int = 0
    _awaited: InFlightWriters | None = field(default=None, init=False)

    def advance(self, numbers: list[int]) -> bool:
        """Move `watermark` up to the first missing number. Return True if no number is missing."""
        for number in numbers:
            if number > self.watermark + 1:
                return False
            self.watermark = max(self.watermark, number)
        return True

    def observe_writers(self, now: InFlightWriters) -> bool:
        """Note which transactions write now. Return True if `watermark` has moved."""
        before = self.watermark
        if self._awaited is not None and not self._awaited.transactions & now.transactions:
            self.watermark = max(self.watermark, self._awaited.newest)
            self._awaited = None
        if not now.transactions:
            self.watermark = max(self.watermark, now.newest)
        elif self._awaited is None:
            self._awaited = now
        return self.watermark > before


class EventWatermark:
    """Finds the number up to which readers may read. One object per process is enough."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock
        self._gaps = GapTracker()
        self._known = False
        # What is heard must not be older than what it is compared with.
        self._looking = asyncio.Lock()

    def forget(self) -> None:
        """Begin anew, because the log has lost its end."""
        self._gaps = GapTracker()
        self._known = False

    async def look(self) -> tuple[int, bool]:
        """Return the number up to which the log is complete, and True if later events are held up.

        The first look waits until the number is known. Otherwise all of history would look like news.
        """
        async with self._looking:
            while True:
                held_up = await self._advance()
                if self._known or not held_up:
                    self._known = True
                    return self._gaps.watermark, held_up
                await self._clock.sleep(RECHECK_S)

    async def _advance(self) -> bool:
        """Move the watermark as far as possible. Return True if later events are held up."""
        while True:
            # If the log loses its end meanwhile, `forget` replaces the gaps. Then these numbers do not count.
            gaps = self._gaps
            numbers = await self._database.read(partial(_numbers, after=gaps.watermark))
            complete = gaps.advance(numbers)
            if complete and len(numbers) < SCAN_LIMIT:
                return gaps is not self._gaps
            further = gaps.observe_writers(await self._database.read(_writers))
            if gaps is not self._gaps:
                continue
            self._known |= further
            if not further and not complete:
                return True


def _numbers(connection: sa.Connection, after: int) -> list[int]:
    behind = sa.select(event.c.id).where(event.c.id > after).order_by(event.c.id)
    return list(connection.execute(behind.limit(SCAN_LIMIT)).scalars())


def _writers(connection: sa.Connection) -> InFlightWriters:
    # In this order: a writer with a number below the newest that is not done still has its lock afterwards.
    newest = int(connection.execute(_NEWEST).scalar_one())
    return InFlightWriters(newest, frozenset(connection.execute(_WRITERS).scalars()))


def append_account_events(connection: sa.Connection, events: Sequence[AccountEvent], now: datetime) -> None:
    """Number the events and write them down with their webhooks, in whichever transaction this is."""
    if not events:
        return
    record_change(connection, ACCOUNT)
    last = sa.select(sa.func.max(event.c.sequence)).where(event.c.instance_id == ACCOUNT)
    first = (connection.execute(last).scalar() or 0) + 1
    numbered = [replace(it.event, instance_id=ACCOUNT, sequence=first + n) for n, it in enumerate(events)]
    connection.execute(sa.insert(event), [event_row(it) for it in numbered])
    told = [it.outbox_entries_for(event) for it, event in zip(events, numbered, strict=True)]
    deliveries = [delivery_row(it) for one in told for it in one.deliveries]
    if deliveries:
        connection.execute(sa.insert(delivery), deliveries)
    job_store.insert_jobs(connection, [job for one in told for job in one.jobs], now)


_ROWS = sa.select(event, instance.c.name, instance.c.owner).select_from(
    event.outerjoin(instance, instance.c.id == event.c.instance_id)
)


class SqlEventLog:
    """The port `EventLog`. On PostgreSQL nothing is shown behind an event that may yet appear."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
    ):
        self._database = database
        self._clock = clock
        self._announce = announce
        self._watermark = None if database.is_sqlite else EventWatermark(database, clock)

    def forget(self) -> None:
        """Learn anew how far the log can be read, because it has lost its end."""
        if self._watermark is not None:
            self._watermark.forget()

    async def after(self, position: int, limit: int, wanted: EventFilter = EVERYTHING) -> EventPage:
        end, held_up = await self._end()
        rows = _ROWS.where(event.c.id > position, event.c.id <= end, *_conditions(wanted))
        # One row more than asked for tells whether there is a next page.
        found = await self._read(rows.order_by(event.c.id).limit(limit + 1))
        shown, more = found[:limit], len(found) > limit
        reached = shown[-1].position if more else max(position, end)
        return EventPage(shown, reached, more, held_up)

    async def before(
        self, position: int | None, limit: int, wanted: EventFilter = EVERYTHING
    ) -> tuple[LoggedEvent, ...]:
        end, _ = await self._end()
        last = end if position is None else min(position - 1, end)
        rows = _ROWS.where(event.c.id <= last, *_conditions(wanted))
        return await self._read(rows.order_by(event.c.id.desc()).limit(limit))

    async def append_account(self, events: Sequence[AccountEvent]) -> None:
        now = self._clock.now()
        try:
            await self._database.write(lambda c: append_account_events(c, events, now))
        except sa.exc.IntegrityError as error:
            raise StaleWrite("another event of the account was numbered at the same moment") from error
        self._announce([ACCOUNT])

    async def newest(self) -> int:
        return (await self._end())[0]

    async def highest(self) -> int:
        return await self._database.read(lambda c: int(c.execute(_NEWEST).scalar_one()))

    async def _end(self) -> tuple[int, bool]:
        """Return the number up to which the log is complete, and True if later events are held up."""
        if self._watermark is not None:
            return await self._watermark.look()
        # SQLite has one writer, so no event with a lower number can still appear.
        return await self.highest(), False

    async def _read(self, query: sa.Select[Any]) -> tuple[LoggedEvent, ...]:
        return await self._database.read(lambda c: tuple(map(_logged, c.execute(query))))


def _logged(row: sa.Row[Any]) -> LoggedEvent:
    return LoggedEvent(row.id, event_of(row), row.name, row.owner)


def _conditions(wanted: EventFilter) -> list[sa.ColumnElement[bool]]:
    where: list[sa.ColumnElement[bool]] = []
    if wanted.owner is not None:
        where.append(instance.c.owner == wanted.owner)
    if wanted.instance_id is not None:
        where.append(event.c.instance_id == wanted.instance_id)
    if wanted.type is not None:
        where.append(event.c.type == wanted.type)
    return where
