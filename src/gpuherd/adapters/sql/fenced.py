"""A database for work that only the holder of a duty may do: what is written out of term is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.replica_schema import duty
from gpuherd.domain.errors import DutyLost

T = TypeVar("T")


class FencedDatabase:
    """The same database, in which each transaction begins with a look at the duty's fence."""

    def __init__(self, database: Database, name: str, fence: Callable[[], int]):
        self._database = database
        self._name = name
        self._fence = fence
        # Nobody can take the duty over before a transaction that has looked is at its end.
        self._term = sa.select(duty.c.fence).where(duty.c.name == name).with_for_update(read=True)

    async def write(self, work: Callable[[sa.Connection], T], *, rings: bool = False) -> T:
        """As `Database.write`; `DutyLost` if the duty has changed hands since our term began."""
        fence = self._fence()

        def in_term(connection: sa.Connection) -> T:
            current = connection.execute(self._term).scalar()
            if current != fence:
                raise DutyLost(f"the duty {self._name} has passed to another replica")
            return work(connection)

        return await self._database.write(in_term, rings=rings)

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._database.read(work)
