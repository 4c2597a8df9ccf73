"""The endpoints, in SQL."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.audit_rows import append_deed, begin_deed
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema import webhook_endpoint as table
from gpuherd.domain.audit import Deed
from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.webhook_endpoint import WebhookEndpoint


class SqlWebhookEndpoints:
    """The port `WebhookEndpoints`."""

    def __init__(self, database: Database):
        self._database = database

    async def add(self, endpoint: WebhookEndpoint, deed: Deed | None = None) -> None:
        row = _row(endpoint)

        def work(connection: sa.Connection) -> None:
            _note(connection, deed)
            connection.execute(sa.insert(table).values(**row))

        await self._database.write(work)

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        return await self._database.read(lambda c: _get(c, endpoint_id))

    async def everyone(self) -> tuple[WebhookEndpoint, ...]:
        query = sa.select(table).order_by(table.c.id)
        return await self._database.read(lambda c: tuple(map(_of, c.execute(query))))

    async def change(self, before: WebhookEndpoint, after: WebhookEndpoint, deed: Deed | None = None) -> None:
        row = _row(after)

        def work(connection: sa.Connection) -> None:
            begin_deed(connection, deed)
            if _get(connection, before.id, lock=True) != before:
                raise StaleWrite(f"endpoint {before.id} has changed since it was read")
            _note(connection, deed)
            connection.execute(sa.update(table).where(table.c.id == before.id).values(**row))

        await self._database.write(work)

    async def remove(self, endpoint_id: str, deed: Deed | None = None) -> None:
        def work(connection: sa.Connection) -> None:
            _note(connection, deed)
            if not connection.execute(sa.delete(table).where(table.c.id == endpoint_id)).rowcount:
                raise _unknown(endpoint_id)

        await self._database.write(work)


def _note(connection: sa.Connection, deed: Deed | None) -> None:
    if deed is not None:
        append_deed(connection, deed)


def _get(connection: sa.Connection, endpoint_id: str, *, lock: bool = False) -> WebhookEndpoint:
    query = sa.select(table).where(table.c.id == endpoint_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise _unknown(endpoint_id)
    return _of(row)


def _unknown(endpoint_id: str) -> NotFound:
    return NotFound(f"there is no webhook endpoint {endpoint_id!r}", code="WEBHOOK_ENDPOINT_NOT_FOUND")


def _row(it: WebhookEndpoint) -> dict[str, Any]:
    return {**vars(it), "events": " ".join(it.events)}


def _of(row: sa.Row[Any]) -> WebhookEndpoint:
    return WebhookEndpoint(**{**row._mapping, "events": tuple(row.events.split())})
