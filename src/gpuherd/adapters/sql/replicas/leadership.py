"""Leader leases, in SQL.

A lease's row says who holds it, until when, and under which fencing token; `FencedDatabase` refuses writes
under an older one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.replica_tables import duty
from gpuherd.clock import Clock
from gpuherd.domain.errors import LeadershipLost

UNHELD = ""


class SqlLeaderLeases:
    """The port `LeaderLeases`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def acquire_or_renew(self, name: str, holder: str, term: timedelta) -> int | None:
        now = self._clock.now()
        is_free = sa.or_(duty.c.holder == holder, duty.c.holder == UNHELD, duty.c.until <= now)
        return await self._database.write(lambda c: _write_lease(c, name, holder, now, now + term, is_free))

    async def force_acquire(self, name: str, holder: str, term: timedelta) -> int:
        now = self._clock.now()
        fence = await self._database.write(
            lambda c: _write_lease(c, name, holder, now, now + term, sa.true())
        )
        assert fence is not None, "a forced acquire always succeeds"
        return fence

    async def release(self, name: str, holder: str) -> None:
        free = (
            sa.update(duty)
            .where(duty.c.name == name, duty.c.holder == holder)
            .values(holder=UNHELD, until=self._clock.now())
        )
        await self._database.write(lambda c: c.execute(free).rowcount)


def _write_lease(
    connection: sa.Connection,
    name: str,
    holder: str,
    now: datetime,
    until: datetime,
    allowed: sa.ColumnElement[bool],
) -> int | None:
    first = insert_into(connection, duty).values(name=name, holder=UNHELD, fence=0, until=now)
    connection.execute(first.on_conflict_do_nothing())
    # Only a term without a gap goes on: whoever comes back later may remember what is not so any more.
    goes_on = sa.and_(duty.c.holder == holder, duty.c.until > now)
    fence = sa.case((goes_on, duty.c.fence), else_=duty.c.fence + 1)
    taken = (
        sa.update(duty)
        .where(duty.c.name == name, allowed)
        .values(holder=holder, until=until, fence=fence)
        .returning(duty.c.fence)
    )
    return connection.execute(taken).scalar()


T = TypeVar("T")


class FencedDatabase:
    """The same database, in which each transaction begins with a check of the fencing token."""

    def __init__(self, database: Database, name: str, fence: Callable[[], int]):
        self._database = database
        self._name = name
        self._fencing_token = fence
        # Nobody can take the duty over before a transaction that has looked is at its end.
        self._term = sa.select(duty.c.fence).where(duty.c.name == name).with_for_update(read=True)

    async def write(
        self, work: Callable[[sa.Connection], T], *, wakes_workers: bool = False, audited: bool = False
    ) -> T:
        """As `Database.write`; `LeadershipLost` if the duty has changed hands since our term began."""
        fence, generation = self._fencing_token(), self._database.history.generation

        def under_lease(connection: sa.Connection) -> T:
            # guard: nor when the loss is noticed by the very transaction that writes it
            if self._database.history.generation != generation:
                # What is about to be written was concluded from what the database had then.
                raise LeadershipLost(f"the database has lost its newest part under the duty {self._name}")
            current = connection.execute(self._term).scalar()
            # guard: the fence of the watch
            if current != fence:
                raise LeadershipLost(f"the duty {self._name} has passed to another replica")
            return work(connection)

        return await self._database.write(under_lease, wakes_workers=wakes_workers, audited=audited)

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._database.read(work)
