"""Named secrets, in SQL: sealed before they come here."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.access.audit import append_audit_record, lock_audit_log
from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.secret_tables import named_secret as table
from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.access.named_secret import NamedSecret


class SqlNamedSecrets:
    """The port `NamedSecrets`."""

    def __init__(self, database: Database):
        self._database = database

    async def put(self, secret: NamedSecret, audit_record: AuditRecord) -> NamedSecret:
        def work(connection: sa.Connection) -> NamedSecret:
            append_audit_record(connection, audit_record)
            row = insert_into(connection, table).values(**vars(secret))
            changed = {"sealed": secret.sealed, "changed_at": secret.changed_at}
            written = row.on_conflict_do_update(index_elements=[table.c.owner, table.c.name], set_=changed)
            return _secret_of(connection.execute(written.returning(*table.c)).one())

        return await self._database.write(work, audited=True)

    async def list_of(self, owner: str) -> tuple[NamedSecret, ...]:
        query = sa.select(table).where(table.c.owner == owner).order_by(table.c.name)
        return await self._database.read(lambda c: tuple(map(_secret_of, c.execute(query))))

    async def list_all(self) -> tuple[NamedSecret, ...]:
        query = sa.select(table).order_by(table.c.owner, table.c.name)
        return await self._database.read(lambda c: tuple(map(_secret_of, c.execute(query))))

    async def reseal(self, secret: NamedSecret, sealed: str) -> bool:
        same = (table.c.owner == secret.owner, table.c.name == secret.name, table.c.sealed == secret.sealed)
        change = sa.update(table).where(*same).values(sealed=sealed)
        return await self._database.write(lambda c: bool(c.execute(change).rowcount))

    async def find(self, owner: str, name: str) -> NamedSecret | None:
        query = sa.select(table).where(table.c.owner == owner, table.c.name == name)

        def work(connection: sa.Connection) -> NamedSecret | None:
            row = connection.execute(query).first()
            return None if row is None else _secret_of(row)

        return await self._database.read(work)

    async def remove(self, owner: str, name: str, audit_record: AuditRecord) -> bool:
        gone = sa.delete(table).where(table.c.owner == owner, table.c.name == name)

        def work(connection: sa.Connection) -> bool:
            lock_audit_log(connection, audit_record)
            if not connection.execute(gone).rowcount:
                return False
            append_audit_record(connection, audit_record)
            return True

        return await self._database.write(work, audited=True)


def _secret_of(row: sa.Row[tuple[object, ...]]) -> NamedSecret:
    return NamedSecret(**row._mapping)
