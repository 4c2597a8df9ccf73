"""Idempotency keys, in SQL.

Which request had which `Idempotency-Key`, what it stands for, and what was answered.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.batched_inserts import PreparedInsert
from gpuherd.adapters.sql.engine.columns import dumps
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.tables import claim as table
from gpuherd.clock import Clock
from gpuherd.domain.errors import Conflict, IdempotencyKeyReused
from gpuherd.ports.access import IdempotencyClaim, StoredReply

_INSERT = PreparedInsert(
    lambda _: sa.insert(table),
    "scope",
    "key",
    "fingerprint",
    "instance_id",
    "created_at",
    "operation_id",
)


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
    _INSERT.run(connection, {**_columns(claim), **mine})


def _columns(claim: IdempotencyClaim) -> dict[str, str]:
    return {"scope": claim.scope, "key": claim.key, "fingerprint": claim.fingerprint}


def same_key(claim: IdempotencyClaim) -> sa.ColumnElement[bool]:
    """Select a claim, whatever was asked with it."""
    return sa.and_(table.c.scope == claim.scope, table.c.key == claim.key)


# No request is answered for so long: whoever had it has died.
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
