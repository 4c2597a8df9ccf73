"""Duties and replicas, in SQL. A duty's row says whose it is, until when, and under which fence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.replica_schema import duty, replica
from gpuherd.adapters.sql.upsert import insert_into
from gpuherd.clock import Clock
from gpuherd.ports.duties import Replica

NOBODY = ""


class SqlDuties:
    """The port `Duties`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def hold(self, name: str, holder: str, term: timedelta) -> int | None:
        now = self._clock.now()
        is_free = sa.or_(duty.c.holder == holder, duty.c.holder == NOBODY, duty.c.until <= now)
        return await self._database.write(lambda c: _take(c, name, holder, now, now + term, is_free))

    async def seize(self, name: str, holder: str, term: timedelta) -> int:
        now = self._clock.now()
        fence = await self._database.write(lambda c: _take(c, name, holder, now, now + term, sa.true()))
        assert fence is not None, "whoever seizes, gets"
        return fence

    async def lay_down(self, name: str, holder: str) -> None:
        free = (
            sa.update(duty)
            .where(duty.c.name == name, duty.c.holder == holder)
            .values(holder=NOBODY, until=self._clock.now())
        )
        await self._database.write(lambda c: c.execute(free).rowcount)


def _take(
    connection: sa.Connection,
    name: str,
    holder: str,
    now: datetime,
    until: datetime,
    allowed: sa.ColumnElement[bool],
) -> int | None:
    first = insert_into(connection, duty).values(name=name, holder=NOBODY, fence=0, until=now)
    connection.execute(first.on_conflict_do_nothing())
    # One who comes back to a duty that nobody took meanwhile goes on where he was.
    fence = sa.case((duty.c.holder == holder, duty.c.fence), else_=duty.c.fence + 1)
    taken = (
        sa.update(duty)
        .where(duty.c.name == name, allowed)
        .values(holder=holder, until=until, fence=fence)
        .returning(duty.c.fence)
    )
    return connection.execute(taken).scalar()


class SqlReplicas:
    """The port `Replicas`."""

    def __init__(self, database: Database):
        self._database = database

    async def sign(self, it: Replica, forget_before: datetime) -> Sequence[Replica]:
        def work(connection: sa.Connection) -> Sequence[Replica]:
            connection.execute(sa.delete(replica).where(replica.c.seen_at < forget_before))
            row = insert_into(connection, replica).values(**vars(it))
            connection.execute(row.on_conflict_do_update(index_elements=["id"], set_={"seen_at": it.seen_at}))
            found = connection.execute(sa.select(replica).order_by(replica.c.started_at, replica.c.id))
            return tuple(Replica(**row._mapping) for row in found)

        return await self._database.write(work)

    async def sign_off(self, replica_id: str) -> None:
        gone = sa.delete(replica).where(replica.c.id == replica_id)
        await self._database.write(lambda c: c.execute(gone).rowcount)
