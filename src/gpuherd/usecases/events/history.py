"""Event history: what happened, to be leafed through in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuherd.ports.events import EventFilter, EventLog, LoggedEvent


@dataclass(frozen=True)
class HistoryPage:
    """Some events, where to go on with older ones, and where a stream may resume."""

    events: Sequence[LoggedEvent]
    next_cursor: int | None
    last: int


@dataclass(frozen=True)
class ReadEventHistory:
    """Of what the filter lets through."""

    log: EventLog

    async def since(self, position: int, limit: int, wanted: EventFilter) -> HistoryPage:
        """Return what happened after an event, oldest first."""
        page = await self.log.after(min(position, await self.log.highest()), limit, wanted)
        return HistoryPage(page.events, None, page.position)

    async def before(self, position: int | None, limit: int, wanted: EventFilter) -> HistoryPage:
        """Return what happened before an event, or until now, newest first."""
        # Read first, so that a client that resumes from it misses nothing.
        last = await self.log.newest()
        older = await self.log.before(last + 1 if position is None else position, limit + 1, wanted)
        found = older[:limit]
        return HistoryPage(found, found[-1].position if len(older) > limit else None, last)

    async def position(self) -> int:
        """Return where the log ends now: a stream that begins here misses nothing from now on."""
        return await self.log.newest()

    async def latest(self, limit: int, wanted: EventFilter) -> Sequence[LoggedEvent]:
        """Return what happened last, newest first."""
        return await self.log.before(None, limit, wanted)
