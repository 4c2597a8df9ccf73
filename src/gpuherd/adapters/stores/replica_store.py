"""Which replicas there are, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.service_tables import duty, replica
from gpuherd.adapters.sql.sql_types import insert_into
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.replica_port import Replica


class SqlReplicas:
    """The port `Replicas`."""

    def __init__(self, database: Database):
        self._database = database

    async def heartbeat(self, it: Replica, forget_before: datetime) -> Sequence[Replica]:
        def work(connection: sa.Connection) -> Sequence[Replica]:
            connection.execute(sa.delete(replica).where(replica.c.seen_at < forget_before))
            row = insert_into(connection, replica).values(**vars(it))
            connection.execute(row.on_conflict_do_update(index_elements=["id"], set_={"seen_at": it.seen_at}))
            found = connection.execute(sa.select(replica).order_by(replica.c.started_at, replica.c.id))
            return tuple(Replica(**row._mapping) for row in found)

        return await self._database.write(work)

    async def deregister(self, replica_id: str) -> None:
        gone = sa.delete(replica).where(replica.c.id == replica_id)
        await self._database.write(lambda c: c.execute(gone).rowcount)


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
    # Only a term without a gap keeps its fence. A holder that comes back later may remember outdated facts.
    goes_on = sa.and_(duty.c.holder == holder, duty.c.until > now)
    fence = sa.case((goes_on, duty.c.fence), else_=duty.c.fence + 1)
    taken = (
        sa.update(duty)
        .where(duty.c.name == name, allowed)
        .values(holder=holder, until=until, fence=fence)
        .returning(duty.c.fence)
    )
    return connection.execute(taken).scalar()
