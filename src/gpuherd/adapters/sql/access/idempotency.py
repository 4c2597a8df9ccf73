"""Rows of claims: which request had which `Idempotency-Key`, and what it stands for."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.prepared import PreparedInsert
from gpuherd.adapters.sql.schema import claim as table
from gpuherd.domain.errors import ClaimMismatch
from gpuherd.ports.store import Claim

_INSERT = PreparedInsert(
    lambda _: sa.insert(table),
    "scope",
    "key",
    "fingerprint",
    "instance_id",
    "created_at",
    "operation_id",
)


def find_claim(connection: sa.Connection, claim: Claim) -> sa.Row[Any] | None:
    """Return the row of a claim, None if nobody made it; `ClaimMismatch` if it was another request."""
    query = sa.select(table).where(is_of(claim))
    row = connection.execute(query).first()
    if row is not None and row.fingerprint != claim.fingerprint:
        raise ClaimMismatch("this Idempotency-Key was already used for another request")
    return row


def claim_instance(
    connection: sa.Connection, claim: Claim, instance_id: str, now: datetime, operation_id: str | None = None
) -> None:
    """Let a claim stand for the making of an instance, or for an operation on it."""
    mine = {"instance_id": instance_id, "created_at": now, "operation_id": operation_id}
    _INSERT.run(connection, {**vars(claim), **mine})


def is_of(claim: Claim) -> sa.ColumnElement[bool]:
    """Select a claim, whatever was asked with it."""
    return sa.and_(table.c.scope == claim.scope, table.c.key == claim.key)
