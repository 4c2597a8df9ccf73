"""Sessions that somebody signed out of, in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.audit_rows import append_deed, begin_deed
from gpuherd.adapters.sql.change_notice import note_change
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema import ended_session
from gpuherd.adapters.sql.upsert import insert_into
from gpuherd.domain.audit import Deed


class SqlEndedSessions:
    """The port `EndedSessions`."""

    def __init__(self, database: Database, announce: Callable[[Sequence[str]], None] = lambda _: None):
        self._database = database
        self._announce = announce

    async def add(self, session_id: str, expires_at: datetime, deed: Deed) -> None:
        def work(connection: sa.Connection) -> None:
            begin_deed(connection, deed)
            row = insert_into(connection, ended_session).values(id=session_id, expires_at=expires_at)
            written = row.on_conflict_do_nothing().returning(ended_session.c.id)
            if connection.execute(written).first() is not None:
                append_deed(connection, deed)
                # Streams that it has open, here or in other replicas, wait for this word.
                note_change(connection, session_id)

        await self._database.write(work)
        self._announce([session_id])

    async def has(self, session_id: str) -> bool:
        query = sa.select(sa.literal(1)).where(ended_session.c.id == session_id)
        return await self._database.read(lambda c: c.execute(query).first() is not None)
