"""The log of all events, in SQL."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.event_horizon import EventHorizon
from gpuherd.adapters.sql.mapping import event_of
from gpuherd.adapters.sql.schema import event, instance
from gpuherd.clock import Clock
from gpuherd.ports.events import EVERYTHING, EventFilter, EventPage, LoggedEvent

_ROWS = sa.select(event, instance.c.name, instance.c.owner).select_from(
    event.outerjoin(instance, instance.c.id == event.c.instance_id)
)
_NEWEST = sa.select(sa.func.coalesce(sa.func.max(event.c.id), 0))


class SqlEventLog:
    """The port `EventLog`. On PostgreSQL nothing is shown behind an event that may yet appear."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._horizon = None if database.is_sqlite else EventHorizon(database, clock)

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

    async def newest(self) -> int:
        return (await self._end())[0]

    async def highest(self) -> int:
        return await self._database.read(lambda c: int(c.execute(_NEWEST).scalar_one()))

    async def _end(self) -> tuple[int, bool]:
        """Return up to where all is told that will ever be, and whether there is more that cannot be yet."""
        if self._horizon is not None:
            return await self._horizon.look()
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
