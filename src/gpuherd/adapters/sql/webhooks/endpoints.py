"""The endpoints, in SQL."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.access.audit import append_audit_record, lock_audit_log
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.tables import webhook_endpoint as table
from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.notifications.kind import EndpointKind
from gpuherd.domain.webhooks.endpoint import WebhookEndpoint


class SqlWebhookEndpoints:
    """The port `WebhookEndpoints`."""

    def __init__(self, database: Database):
        self._database = database

    async def add(self, endpoint: WebhookEndpoint, audit_record: AuditRecord | None = None) -> None:
        row = _row(endpoint)

        def work(connection: sa.Connection) -> None:
            _audit(connection, audit_record)
            connection.execute(sa.insert(table).values(**row))

        await self._database.write(work, audited=audit_record is not None)

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        return await self._database.read(lambda c: _get(c, endpoint_id))

    async def list_all(self) -> tuple[WebhookEndpoint, ...]:
        query = sa.select(table).order_by(table.c.id)
        return await self._database.read(lambda c: tuple(map(_endpoint_of, c.execute(query))))

    async def change(
        self, before: WebhookEndpoint, after: WebhookEndpoint, audit_record: AuditRecord | None = None
    ) -> None:
        row = _row(after)

        def work(connection: sa.Connection) -> None:
            lock_audit_log(connection, audit_record)
            if _get(connection, before.id, lock=True) != before:
                raise StaleWrite(f"endpoint {before.id} has changed since it was read")
            _audit(connection, audit_record)
            connection.execute(sa.update(table).where(table.c.id == before.id).values(**row))

        await self._database.write(work, audited=audit_record is not None)

    async def remove(self, endpoint_id: str, audit_record: AuditRecord | None = None) -> None:
        def work(connection: sa.Connection) -> None:
            _audit(connection, audit_record)
            if not connection.execute(sa.delete(table).where(table.c.id == endpoint_id)).rowcount:
                raise _unknown(endpoint_id)

        await self._database.write(work, audited=audit_record is not None)


def _audit(connection: sa.Connection, audit_record: AuditRecord | None) -> None:
    if audit_record is not None:
        append_audit_record(connection, audit_record)


def _get(connection: sa.Connection, endpoint_id: str, *, lock: bool = False) -> WebhookEndpoint:
    query = sa.select(table).where(table.c.id == endpoint_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise _unknown(endpoint_id)
    return _endpoint_of(row)


def _unknown(endpoint_id: str) -> NotFound:
    return NotFound(f"there is no webhook endpoint {endpoint_id!r}", code="WEBHOOK_ENDPOINT_NOT_FOUND")


def _row(it: WebhookEndpoint) -> dict[str, Any]:
    return {**vars(it), "events": " ".join(it.events), "kind": it.kind.value}


def _endpoint_of(row: sa.Row[Any]) -> WebhookEndpoint:
    read = {"events": tuple(row.events.split()), "kind": EndpointKind(row.kind)}
    return WebhookEndpoint(**{**row._mapping, **read})
