"""Single facts about the whole installation, in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.access.audit import append_audit_record
from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.engine.prepared_statements import PreparedStatement
from gpuherd.adapters.sql.schema.tables import installation
from gpuherd.domain.access.audit import AuditRecord

_VALUE = PreparedStatement(
    sa.select(installation.c.value).where(installation.c.key == sa.bindparam("its_key"))
)


class SqlFlags:
    """The port `Flags`."""

    def __init__(self, database: Database):
        self._database = database

    async def get(self, key: str) -> str | None:
        value: str | None = await self._database.read(lambda c: _VALUE.scalar(c, {"its_key": key}))
        return value

    async def first(self, *keys: str) -> str | None:
        def work(connection: sa.Connection) -> str | None:
            found = (_VALUE.scalar(connection, {"its_key": key}) for key in keys)
            return next((str(it) for it in found if it is not None), None)

        return await self._database.read(work)

    async def swap(
        self, key: str, old: str | None, new: str | None, audit_record: AuditRecord | None = None
    ) -> bool:
        assert old is not None or new is not None, "nothing in the place of nothing is no change"

        def work(connection: sa.Connection) -> bool:
            found = sa.and_(installation.c.key == key, installation.c.value == old)
            change: sa.ReturnsRows
            if old is None:
                row = insert_into(connection, installation).values(key=key, value=new)
                change = row.on_conflict_do_nothing().returning(installation.c.key)
            elif new is None:
                change = sa.delete(installation).where(found).returning(installation.c.key)
            else:
                change = sa.update(installation).where(found).values(value=new).returning(installation.c.key)
            if connection.execute(change).first() is None:
                return False
            if audit_record is not None:
                append_audit_record(connection, audit_record)
            return True

        return await self._database.write(work, audited=audit_record is not None)

    async def put(self, key: str, value: str | None, audit_record: AuditRecord | None = None) -> None:
        def work(connection: sa.Connection) -> None:
            if audit_record is not None:
                append_audit_record(connection, audit_record)
            if value is None:
                connection.execute(sa.delete(installation).where(installation.c.key == key))
                return
            row = insert_into(connection, installation).values(key=key, value=value)
            connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": value}))

        await self._database.write(work, audited=audit_record is not None)

    def ensure(self, key: str, fresh: str) -> str:
        """Return what is stored under `key`, storing `fresh` first if nothing is."""

        def work(connection: sa.Connection) -> str:
            row = insert_into(connection, installation).values(key=key, value=fresh)
            connection.execute(row.on_conflict_do_nothing())
            return str(_VALUE.scalar(connection, {"its_key": key}))

        return self._database.write_now(work)
