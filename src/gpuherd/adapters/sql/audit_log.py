"""The audit log, in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.audit_rows import append_deed, entry_of
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema import audit
from gpuherd.domain.audit import AuditEntry, Deed
from gpuherd.ports.keys import AuditPage


class SqlAuditLog:
    """The port `AuditLog`."""

    def __init__(self, database: Database):
        self._database = database

    async def append(self, deed: Deed) -> AuditEntry:
        return await self._database.write(lambda c: append_deed(c, deed))

    async def page(self, limit: int, cursor: int | None = None, *, oldest_first: bool = False) -> AuditPage:
        after = [] if cursor is None else [audit.c.n > cursor if oldest_first else audit.c.n < cursor]
        order = audit.c.n.asc() if oldest_first else audit.c.n.desc()
        # One row more than asked for tells whether there is a next page.
        rows = sa.select(audit).where(*after).order_by(order).limit(limit + 1)
        count = sa.select(sa.func.count()).select_from(audit)

        def work(connection: sa.Connection) -> AuditPage:
            found = tuple(map(entry_of, connection.execute(rows)))
            shown = found[:limit]
            more = len(found) > limit
            return AuditPage(shown, connection.execute(count).scalar_one(), shown[-1].n if more else None)

        return await self._database.read(work)
