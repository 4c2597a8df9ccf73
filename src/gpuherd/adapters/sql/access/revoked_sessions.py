"""Dashboard sessions that were signed out of before they expired, in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.access.audit import append_audit_record, lock_audit_log
from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.postgres.notify import record_change
from gpuherd.adapters.sql.schema.tables import ended_session
from gpuherd.domain.access.audit import AuditRecord


class SqlRevokedSessions:
    """The port `RevokedSessions`."""

    def __init__(self, database: Database, announce: Callable[[Sequence[str]], None] = lambda _: None):
        self._database = database
        self._announce = announce

    async def add(self, session_id: str, expires_at: datetime, audit_record: AuditRecord) -> None:
        def work(connection: sa.Connection) -> None:
            lock_audit_log(connection, audit_record)
            row = insert_into(connection, ended_session).values(id=session_id, expires_at=expires_at)
            written = row.on_conflict_do_nothing().returning(ended_session.c.id)
            if connection.execute(written).first() is not None:
                append_audit_record(connection, audit_record)
                # Streams that it has open, here or in other replicas, wait for this word.
                record_change(connection, session_id)

        await self._database.write(work, audited=True)
        self._announce([session_id])

    async def has(self, session_id: str) -> bool:
        query = sa.select(sa.literal(1)).where(ended_session.c.id == session_id)
        return await self._database.read(lambda c: c.execute(query).first() is not None)
