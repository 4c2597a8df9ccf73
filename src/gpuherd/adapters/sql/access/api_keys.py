"""API keys, in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.access.audit import append_audit_record, lock_audit_log
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.tables import api_key as table
from gpuherd.domain.access.api_key import ApiKey, Limits, Scope
from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.access.webhook_secret import KeyWebhookSecret
from gpuherd.domain.errors import Conflict, NotFound, StaleWrite


class SqlApiKeys:
    """The port `ApiKeys`."""

    def __init__(self, database: Database):
        self._database = database

    async def add(self, key: ApiKey, audit_record: AuditRecord) -> None:
        row = _row(key)

        def work(connection: sa.Connection) -> None:
            append_audit_record(connection, audit_record)
            connection.execute(sa.insert(table).values(**row))

        try:
            await self._database.write(work, audited=True)
        except sa.exc.IntegrityError as error:
            raise Conflict(f"there is a key {key.id!r} already", code="KEY_EXISTS") from error

    async def list_all(self) -> tuple[ApiKey, ...]:
        query = sa.select(table).order_by(table.c.created_at, table.c.id)
        return await self._database.read(lambda c: tuple(map(_key_of, c.execute(query))))

    async def get(self, key_id: str) -> ApiKey:
        return await self._database.read(lambda c: _get(c, key_id))

    async def revoke(self, key_id: str, audit_record: AuditRecord) -> ApiKey:
        def work(connection: sa.Connection) -> ApiKey:
            lock_audit_log(connection, audit_record)
            known = _get(connection, key_id)
            if known.revoked_at is not None:
                return known
            append_audit_record(connection, audit_record)
            connection.execute(
                sa.update(table).where(table.c.id == key_id).values(revoked_at=audit_record.at)
            )
            return replace(known, revoked_at=audit_record.at)

        return await self._database.write(work, audited=True)

    async def set_webhook_secret(
        self, before: ApiKey, secret: KeyWebhookSecret, audit_record: AuditRecord
    ) -> None:
        def work(connection: sa.Connection) -> None:
            lock_audit_log(connection, audit_record)
            if _get(connection, before.id).webhook_secret != before.webhook_secret:
                raise StaleWrite("the webhook secret of this key was rotated meanwhile; look at it again")
            append_audit_record(connection, audit_record)
            changed = sa.update(table).where(table.c.id == before.id).values(**_webhook_row(secret))
            connection.execute(changed)

        await self._database.write(work, audited=True)

    async def record_use(self, moments: Mapping[str, datetime]) -> None:
        def work(connection: sa.Connection) -> None:
            # In one order everywhere, so that two processes never wait for each other in a circle.
            for key_id, at in sorted(moments.items()):
                later = sa.or_(table.c.last_used_at.is_(None), table.c.last_used_at < at)
                known = sa.update(table).where(table.c.id == key_id, later)
                connection.execute(known.values(last_used_at=at))

        await self._database.write(work)


def _get(connection: sa.Connection, key_id: str) -> ApiKey:
    row = connection.execute(sa.select(table).where(table.c.id == key_id)).first()
    if row is None:
        raise NotFound(f"there is no key {key_id!r}", code="KEY_NOT_FOUND")
    return _key_of(row)


def _row(it: ApiKey) -> dict[str, Any]:
    usd = it.limits.max_hourly_usd
    row = {key: value for key, value in vars(it).items() if key not in ("limits", "webhook_secret")}
    return {
        **row,
        **_webhook_row(it.webhook_secret),
        "scopes": " ".join(it.scopes),
        "requests_per_minute": it.limits.requests_per_minute,
        "max_gpus": it.limits.max_gpus,
        "max_hourly_usd": None if usd is None else str(usd),
        "max_lease_s": it.limits.max_lease_s,
    }


def _webhook_row(it: KeyWebhookSecret | None) -> dict[str, Any]:
    fields = ("nonce", "root", "generation", "rotated_at", "previous_nonce", "previous_root")
    return {f"webhook_{name}": None if it is None else getattr(it, name) for name in fields}


def _webhook_secret(row: sa.Row[Any]) -> KeyWebhookSecret | None:
    if row.webhook_nonce is None:
        return None
    return KeyWebhookSecret(
        row.webhook_nonce,
        row.webhook_root,
        row.webhook_generation,
        row.webhook_rotated_at,
        row.webhook_previous_nonce,
        row.webhook_previous_root,
    )


def _key_of(row: sa.Row[Any]) -> ApiKey:
    usd = row.max_hourly_usd
    return ApiKey(
        id=row.id,
        digest=row.digest,
        label=row.label,
        scopes=tuple(map(Scope, row.scopes.split())),
        created_at=row.created_at,
        limits=Limits(
            row.requests_per_minute, row.max_gpus, None if usd is None else Decimal(usd), row.max_lease_s
        ),
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        webhook_secret=_webhook_secret(row),
    )
