"""The audit log, in SQL.

Records are appended in the same transaction as what they tell of, each chained to the one before by a hash.
"""

from __future__ import annotations

from datetime import datetime
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.service_tables import audit, audit_anchor
from gpuherd.domain.audit import (
    NO_HASH,
    PRUNE_ACTION,
    AuditAnchor,
    AuditEntry,
    AuditRecord,
    chained,
    first_broken_entry,
)
from gpuherd.ports.access_port import AuditPage, AuditPruning

# Any constant will do, as long as every gpuherd uses the same.
AUDIT_LOCK = 7_415_264


# The actor of a pruning, and how many entries each one takes.
PRUNED_BY = "retention"


PRUNED_AT_ONCE = 1000
_LOCK = sa.select(sa.func.pg_advisory_xact_lock(AUDIT_LOCK))
_LAST = sa.select(audit.c.n, audit.c.hash).where(
    audit.c.n == sa.select(sa.func.max(audit.c.n)).scalar_subquery()
)


def lock_audit_log(connection: sa.Connection, audit_record: AuditRecord | None) -> None:
    """Let no other process append until this transaction ends.

    Call it before any other statement: transactions that lock in one order never wait in a circle.
    """
    if audit_record is not None and connection.dialect.name == "postgresql":
        connection.execute(_LOCK)


def append_audit_record(connection: sa.Connection, audit_record: AuditRecord) -> AuditEntry:
    """Chain a record to the entry before it, and append it."""
    lock_audit_log(connection, audit_record)
    last = connection.execute(_LAST).first()
    last_n, last_hash = (0, NO_HASH) if last is None else (last.n, last.hash)
    entry = chained(audit_record, last_n, last_hash)
    connection.execute(sa.insert(audit), {**vars(audit_record), "n": entry.n, "hash": entry.hash})
    return entry


def entry_of(row: sa.Row[Any]) -> AuditEntry:
    """Return the entry that a row remembers."""
    audit_record = AuditRecord(
        row.at, row.actor, row.action, row.target, row.before, row.after, row.request_id
    )
    return AuditEntry(row.n, audit_record, row.hash)


def prune_some_entries(connection: sa.Connection, before: datetime, now: datetime) -> AuditPruning:
    """Delete a batch of the oldest entries, move the anchor behind them, and append that it was done."""
    # The transaction's first statement; the record is not yet known.
    lock_audit_log(connection, AuditRecord(now, PRUNED_BY, PRUNE_ACTION, ""))
    anchor = _anchor(connection)
    last_n, last_hash = (anchor.n, anchor.hash) if anchor else (0, NO_HASH)
    rows = sa.select(audit).order_by(audit.c.n).limit(PRUNED_AT_ONCE + 1)
    # One stays, for the next to be chained to.
    oldest = list(map(entry_of, connection.execute(rows)))[:-1]
    old = list(takewhile(lambda it: it.audit_record.at < before, oldest))
    if not old:
        return AuditPruning(0)
    if (broken_at := first_broken_entry(old, last_n, last_hash)) is not None:
        return AuditPruning(0, broken_at)
    end = AuditAnchor(old[-1].n, old[-1].hash)
    if anchor is None:
        connection.execute(sa.insert(audit_anchor).values(id=1, **vars(end)))
    else:
        connection.execute(sa.update(audit_anchor).values(**vars(end)))
    connection.execute(sa.delete(audit).where(audit.c.n <= end.n))
    told = AuditRecord(now, PRUNED_BY, PRUNE_ACTION, str(end.n), last_hash, end.hash)
    append_audit_record(connection, told)
    return AuditPruning(len(old))


def _anchor(connection: sa.Connection) -> AuditAnchor | None:
    row = connection.execute(sa.select(audit_anchor.c.n, audit_anchor.c.hash)).first()
    return None if row is None else AuditAnchor(row.n, row.hash)


class SqlAuditLog:
    """The port `AuditLog`."""

    def __init__(self, database: Database):
        self._database = database

    async def append(self, audit_record: AuditRecord) -> AuditEntry:
        return await self._database.write(lambda c: append_audit_record(c, audit_record), audited=True)

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
            total = connection.execute(count).scalar_one()
            return AuditPage(shown, total, shown[-1].n if more else None, _anchor(connection))

        return await self._database.read(work)
