"""Refuse the writes of a leader whose term is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.service_tables import duty
from gpuherd.domain.errors import LeadershipLost

T = TypeVar("T")


class FencedDatabase:
    """The same database, in which each transaction begins with a check of the fencing token."""

    def __init__(self, database: Database, name: str, fence: Callable[[], int]):
        self._database = database
        self._name = name
        self._fencing_token = fence
        # Nobody can take the duty over before a transaction that has looked is at its end.
        self._term = sa.select(duty.c.fence).where(duty.c.name == name).with_for_update(read=True)

    async def write(self, work: Callable[[sa.Connection], T], *, audited: bool = False) -> T:
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

        return await self._database.write(under_lease, audited=audited)

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._database.read(work)
