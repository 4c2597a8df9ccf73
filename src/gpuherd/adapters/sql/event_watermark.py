"""The watermark of the event log on PostgreSQL: up to which number it can be read without ever missing an
event.

Numbers are given out before the commit, so number 11 may be seen before number 10. A reader that goes on
behind 11 never gets 10. Here a gap is waited for, until every transaction that could still be about to
fill it has ended; then it was rolled back, or pruned long ago, and is passed over.

Which those are, the locks tell: a transaction locks the table of events before it gets a number, and keeps
the lock to its end. (A snapshot's list of running transactions would also do, but in it are those of every
database of the server, and maintenance of another database would hold up our events.)"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.tables import event
from gpuherd.clock import Clock

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
    """What is known of the numbers: all up to `watermark` are there, or never will be."""

    watermark: int = 0
    _awaited: InFlightWriters | None = field(default=None, init=False)

    def advance(self, numbers: list[int]) -> bool:
        """Go on as far as no number is missing behind `watermark`; tell whether that was to the end."""
        for number in numbers:
            if number > self.watermark + 1:
                return False
            self.watermark = max(self.watermark, number)
        return True

    def observe_writers(self, now: InFlightWriters) -> bool:
        """Learn who is writing now; tell whether that has brought us further."""
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
    """Looks how far one may read. One for each process will do."""

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
        """Return up to which number nothing can appear any more, and whether there are some behind that.

        The first look waits until it is known: otherwise all of history would seem to be news.
        """
        async with self._looking:
            while True:
                held_up = await self._advance()
                if self._known or not held_up:
                    self._known = True
                    return self._gaps.watermark, held_up
                await self._clock.sleep(RECHECK_S)

    async def _advance(self) -> bool:
        """Go as far as possible; tell whether something is held up."""
        while True:
            # Whatever is read of a log that then loses its end is of no use for the next.
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
