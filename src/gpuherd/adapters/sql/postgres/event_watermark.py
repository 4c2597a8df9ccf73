"""How far the events on PostgreSQL can be read without ever missing one.

Numbers are given out before the commit, so number 11 may be seen before number 10. Whoever then reads on
behind 11 never gets 10. Here a missing number is waited for, until everybody who could still be about to
write it has ended; then it was undone, or forgotten long ago, and is passed over.

Who that is, the locks tell: a transaction locks the table of events before it gets a number, and keeps the
lock to its end. (A snapshot's list of running transactions would also do, but in it are those of every
database of the server, and a night's maintenance of somebody else's would hold up our events.)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema import event
from gpuherd.clock import Clock

# More at once than this is old history: it is not counted through, but waited out as one gap.
NUMBERS_AT_ONCE = 1000
LOOK_AGAIN_S = 0.02

_NEWEST = sa.select(sa.func.coalesce(sa.func.max(event.c.id), 0))
_WRITERS = sa.text(
    "SELECT virtualtransaction FROM pg_locks"
    " WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND relation = 'event'::regclass"
)


@dataclass(frozen=True)
class Writers:
    """Who was writing when `newest` could be seen: nobody else can still bring a number below it."""

    newest: int
    transactions: frozenset[str]


@dataclass
class Reach:
    """What is known of the numbers: all up to `sure` are there, or never will be."""

    sure: int = 0
    _awaited: Writers | None = field(default=None, init=False)

    def count(self, numbers: list[int]) -> bool:
        """Go on as far as no number is missing behind `sure`; tell whether that was to the end."""
        for number in numbers:
            if number > self.sure + 1:
                return False
            self.sure = max(self.sure, number)
        return True

    def hear(self, now: Writers) -> bool:
        """Learn who is writing now; tell whether that has brought us further."""
        before = self.sure
        if self._awaited is not None and not self._awaited.transactions & now.transactions:
            self.sure = max(self.sure, self._awaited.newest)
            self._awaited = None
        if not now.transactions:
            self.sure = max(self.sure, now.newest)
        elif self._awaited is None:
            self._awaited = now
        return self.sure > before


class EventHorizon:
    """Looks how far one may read. One for each process will do."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock
        self._reach = Reach()
        self._known = False
        # What is heard must not be older than what it is compared with.
        self._looking = asyncio.Lock()

    async def look(self) -> tuple[int, bool]:
        """Return up to which number nothing can appear any more, and whether there are some behind that.

        The first look waits until it is known: otherwise all of history would seem to be news.
        """
        async with self._looking:
            while True:
                held_up = await self._look()
                if self._known or not held_up:
                    self._known = True
                    return self._reach.sure, held_up
                await self._clock.sleep(LOOK_AGAIN_S)

    async def _look(self) -> bool:
        """Go as far as possible; tell whether something is held up."""
        while True:
            numbers = await self._database.read(self._numbers)
            complete = self._reach.count(numbers)
            if complete and len(numbers) < NUMBERS_AT_ONCE:
                return False
            further = self._reach.hear(await self._database.read(_writers))
            self._known |= further
            if not further and not complete:
                return True

    def _numbers(self, connection: sa.Connection) -> list[int]:
        behind = sa.select(event.c.id).where(event.c.id > self._reach.sure).order_by(event.c.id)
        return list(connection.execute(behind.limit(NUMBERS_AT_ONCE)).scalars())


def _writers(connection: sa.Connection) -> Writers:
    # In this order: whoever has a number below the newest, and is not done, still has his lock afterwards.
    newest = int(connection.execute(_NEWEST).scalar_one())
    return Writers(newest, frozenset(connection.execute(_WRITERS).scalars()))
