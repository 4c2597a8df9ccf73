"""API keys, ended sessions, named secrets, idempotency keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.listen_notify import record_change
from gpuherd.adapters.sql.rental_tables import claim as table
from gpuherd.adapters.sql.service_tables import api_key, ended_session, named_secret
from gpuherd.adapters.sql.sql_types import dumps, insert_into
from gpuherd.adapters.stores.audit_store import append_audit_record, lock_audit_log
from gpuherd.domain.api_key import ApiKey, Limits, Scope
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import (
    Conflict,
    IdempotencyKeyReused,
    NotFound,
    StaleWrite,
)
from gpuherd.domain.secret import NamedSecret
from gpuherd.domain.webhooks.webhook_signing import KeyWebhookSecret
from gpuherd.ports.access_port import IdempotencyClaim, StoredReply
from gpuherd.ports.clock_port import Clock


class SqlApiKeys:
    """The port `ApiKeys`."""

    def __init__(self, database: Database):
        self._database = database

    async def add(self, key: ApiKey, audit_record: AuditRecord) -> None:
        row = _row(key)

        def work(connection: sa.Connection) -> None:
            append_audit_record(connection, audit_record)
            connection.execute(sa.insert(api_key).values(**row))

        try:
            await self._database.write(work, audited=True)
        except sa.exc.IntegrityError as error:
            raise Conflict(f"there is a key {key.id!r} already", code="KEY_EXISTS") from error

    async def list_all(self) -> tuple[ApiKey, ...]:
        query = sa.select(api_key).order_by(api_key.c.created_at, api_key.c.id)
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
                sa.update(api_key).where(api_key.c.id == key_id).values(revoked_at=audit_record.at)
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
            changed = sa.update(api_key).where(api_key.c.id == before.id).values(**_webhook_row(secret))
            connection.execute(changed)

        await self._database.write(work, audited=True)

    async def record_use(self, moments: Mapping[str, datetime]) -> None:
        def work(connection: sa.Connection) -> None:
            # In one order everywhere, so that two processes never wait for each other in a circle.
            for key_id, at in sorted(moments.items()):
                later = sa.or_(api_key.c.last_used_at.is_(None), api_key.c.last_used_at < at)
                known = sa.update(api_key).where(api_key.c.id == key_id, later)
                connection.execute(known.values(last_used_at=at))

        await self._database.write(work)


def _get(connection: sa.Connection, key_id: str) -> ApiKey:
    row = connection.execute(sa.select(api_key).where(api_key.c.id == key_id)).first()
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


class SqlNamedSecrets:
    """The port `NamedSecrets`."""

    def __init__(self, database: Database):
        self._database = database

    async def put(self, secret: NamedSecret, audit_record: AuditRecord) -> NamedSecret:
        def work(connection: sa.Connection) -> NamedSecret:
            append_audit_record(connection, audit_record)
            row = insert_into(connection, named_secret).values(**vars(secret))
            changed = {"sealed": secret.sealed, "changed_at": secret.changed_at}
            written = row.on_conflict_do_update(
                index_elements=[named_secret.c.owner, named_secret.c.name], set_=changed
            )
            return _secret_of(connection.execute(written.returning(*named_secret.c)).one())

        return await self._database.write(work, audited=True)

    async def list_of(self, owner: str) -> tuple[NamedSecret, ...]:
        query = sa.select(named_secret).where(named_secret.c.owner == owner).order_by(named_secret.c.name)
        return await self._database.read(lambda c: tuple(map(_secret_of, c.execute(query))))

    async def list_all(self) -> tuple[NamedSecret, ...]:
        query = sa.select(named_secret).order_by(named_secret.c.owner, named_secret.c.name)
        return await self._database.read(lambda c: tuple(map(_secret_of, c.execute(query))))

    async def reseal(self, secret: NamedSecret, sealed: str) -> bool:
        same = (
            named_secret.c.owner == secret.owner,
            named_secret.c.name == secret.name,
            named_secret.c.sealed == secret.sealed,
        )
        change = sa.update(named_secret).where(*same).values(sealed=sealed)
        return await self._database.write(lambda c: bool(c.execute(change).rowcount))

    async def find(self, owner: str, name: str) -> NamedSecret | None:
        query = sa.select(named_secret).where(named_secret.c.owner == owner, named_secret.c.name == name)

        def work(connection: sa.Connection) -> NamedSecret | None:
            row = connection.execute(query).first()
            return None if row is None else _secret_of(row)

        return await self._database.read(work)

    async def remove(self, owner: str, name: str, audit_record: AuditRecord) -> bool:
        gone = sa.delete(named_secret).where(named_secret.c.owner == owner, named_secret.c.name == name)

        def work(connection: sa.Connection) -> bool:
            lock_audit_log(connection, audit_record)
            if not connection.execute(gone).rowcount:
                return False
            append_audit_record(connection, audit_record)
            return True

        return await self._database.write(work, audited=True)


def _secret_of(row: sa.Row[tuple[object, ...]]) -> NamedSecret:
    return NamedSecret(**row._mapping)


def find_claim(connection: sa.Connection, claim: IdempotencyClaim) -> sa.Row[Any] | None:
    """Return the row of a claim, None if nobody made it; `IdempotencyKeyReused` if it was another request."""
    query = sa.select(table).where(same_key(claim))
    row = connection.execute(query).first()
    if row is not None and not claim.is_for(row.fingerprint):
        raise IdempotencyKeyReused("this Idempotency-Key was already used for another request")
    return row


def claim_instance(
    connection: sa.Connection,
    claim: IdempotencyClaim,
    instance_id: str,
    now: datetime,
    operation_id: str | None = None,
) -> None:
    """Let a claim stand for the making of an instance, or for an operation on it."""
    mine = {"instance_id": instance_id, "created_at": now, "operation_id": operation_id}
    connection.execute(sa.insert(table), {**_columns(claim), **mine})


def _columns(claim: IdempotencyClaim) -> dict[str, str]:
    return {"scope": claim.scope, "key": claim.key, "fingerprint": claim.fingerprint}


def same_key(claim: IdempotencyClaim) -> sa.ColumnElement[bool]:
    """Select a claim by its scope and key, for any request."""
    return sa.and_(table.c.scope == claim.scope, table.c.key == claim.key)


# No request takes this long. An older claim belongs to a process that has died.
CLAIM_TIMEOUT = timedelta(minutes=2)


class SqlIdempotencyStore:
    """The port `IdempotencyStore`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def begin(self, claim: IdempotencyClaim) -> StoredReply | None:
        try:
            return await self._database.write(lambda c: self._begin(c, claim))
        except sa.exc.IntegrityError:
            # Another process was faster by a moment; now its claim can be seen.
            return await self._database.write(lambda c: self._begin(c, claim))

    def _begin(self, connection: sa.Connection, claim: IdempotencyClaim) -> StoredReply | None:
        now = self._clock.now()
        row = find_claim(connection, claim)
        if row is None:
            connection.execute(sa.insert(table).values(**_columns(claim), created_at=now))
            return None
        if row.reply is not None:
            return StoredReply(**json.loads(row.reply))
        again = sa.update(table).where(same_key(claim), table.c.created_at == row.created_at)
        if (
            row.created_at > now - CLAIM_TIMEOUT
            or not connection.execute(again.values(created_at=now)).rowcount
        ):
            raise Conflict(
                "the first request with this Idempotency-Key is still being answered",
                code="IDEMPOTENCY_KEY_IN_USE",
            )
        return None

    async def finish(self, claim: IdempotencyClaim, reply: StoredReply) -> None:
        text = dumps({"status": reply.status, "headers": dict(reply.headers), "body": reply.body})
        kept = sa.update(table).where(same_key(claim)).values(reply=text)
        await self._database.write(lambda c: c.execute(kept).rowcount)

    async def release(self, claim: IdempotencyClaim) -> None:
        given_up = sa.delete(table).where(same_key(claim), table.c.reply.is_(None))
        await self._database.write(lambda c: c.execute(given_up).rowcount)
