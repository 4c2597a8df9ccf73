"""Rows of the audit log, written in whichever transaction does what they tell of."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.prepared import PreparedInsert, first_row
from gpuherd.adapters.sql.schema import audit
from gpuherd.domain.audit import NO_HASH, AuditEntry, Deed, sealed

# Any constant will do, as long as every gpuherd uses the same.
AUDIT_LOCK = 7_415_264
_TAIL = "gpuherd.audit_tail"
_LAST = "SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1"
_INSERT = PreparedInsert(
    lambda _: sa.insert(audit).inline(),
    "n",
    "at",
    "actor",
    "action",
    "target",
    "before",
    "after",
    "request_id",
    "hash",
)


def begin_deed(connection: sa.Connection, deed: Deed | None) -> None:
    """Let no other process append until this transaction ends. Call it first: who locks in one order, never
    waits in a circle."""
    if deed is not None and connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(AUDIT_LOCK)))


def append_deed(connection: sa.Connection, deed: Deed) -> AuditEntry:
    """Seal a deed with the entry before it, and write it down."""
    begin_deed(connection, deed)
    transaction = connection.get_transaction()
    # One commit holds many deeds. Whoever undoes some of them has a savepoint, and looks for himself.
    is_whole = transaction is not None and not connection.in_nested_transaction()
    known = connection.info.pop(_TAIL, None)
    if known is not None and is_whole and known[0] is transaction:
        _, last_n, last_hash = known
    else:
        last_n, last_hash = first_row(connection, _LAST) or (0, NO_HASH)
    entry = sealed(deed, last_n, last_hash)
    _INSERT.run_later(connection, {**vars(deed), "n": entry.n, "hash": entry.hash})
    if is_whole:
        connection.info[_TAIL] = (transaction, entry.n, entry.hash)
    return entry


def entry_of(row: sa.Row[Any]) -> AuditEntry:
    """Return the entry that a row remembers."""
    deed = Deed(row.at, row.actor, row.action, row.target, row.before, row.after, row.request_id)
    return AuditEntry(row.n, deed, row.hash)
