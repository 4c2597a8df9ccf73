"""Which replicas there are, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.replica_tables import replica
from gpuherd.ports.replicas import Replica


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
