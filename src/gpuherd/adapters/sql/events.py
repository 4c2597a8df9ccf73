"""The event log, in SQL: all events in one order, and the append of those that belong to no instance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.event_watermark import EventWatermark
from gpuherd.adapters.sql.jobs import job_rows
from gpuherd.adapters.sql.mapping.deliveries import delivery_row
from gpuherd.adapters.sql.mapping.instances import event_of, event_row
from gpuherd.adapters.sql.postgres.notify import record_change
from gpuherd.adapters.sql.schema.tables import delivery, event, instance
from gpuherd.clock import Clock
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.ports.events import EVERYTHING, AccountEvent, EventFilter, EventPage, LoggedEvent


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
    job_rows.insert_jobs(connection, [job for one in told for job in one.jobs], now)


_ROWS = sa.select(event, instance.c.name, instance.c.owner).select_from(
    event.outerjoin(instance, instance.c.id == event.c.instance_id)
)
_NEWEST = sa.select(sa.func.coalesce(sa.func.max(event.c.id), 0))


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
            await self._database.write(lambda c: append_account_events(c, events, now), wakes_workers=True)
        except sa.exc.IntegrityError as error:
            raise StaleWrite("another event of the account was numbered at the same moment") from error
        self._announce([ACCOUNT])

    async def newest(self) -> int:
        return (await self._end())[0]

    async def highest(self) -> int:
        return await self._database.read(lambda c: int(c.execute(_NEWEST).scalar_one()))

    async def _end(self) -> tuple[int, bool]:
        """Return up to where all is told that will ever be, and whether there is more that cannot be yet."""
        if self._watermark is not None:
            return await self._watermark.look()
        # One writer: whatever can be seen, nothing before it is still on its way.
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
