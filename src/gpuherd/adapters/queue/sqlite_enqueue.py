"""New jobs in the queue's table on SQLite, with PGQueuer's three answers to a repeated dedupe key."""

from __future__ import annotations

from pgqueuer.adapters.persistence.query_helpers import NormedEnqueueParam
from pgqueuer.domain.errors import DuplicateJobError
from pgqueuer.domain.types import JobId, OnConflict
from pydantic_core import to_json
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from gpuherd.adapters.queue.sqlite_rows import MICROSECOND, execute

_INSERT = """
    INSERT INTO pgqueuer (priority, created, updated, heartbeat, execute_after, status, entrypoint,
                          dedupe_key, payload, headers, attempts)
    VALUES (:priority, :now, :now, :now, :execute_after, 'queued', :entrypoint,
            :dedupe_key, :payload, :headers, 0)
    {on_conflict} RETURNING id
"""
# SQLite finds the partial unique index only if its condition is repeated here.
_SAME_KEY = "ON CONFLICT (dedupe_key) WHERE status IN ('queued', 'picked') AND dedupe_key IS NOT NULL"
_STATEMENTS = {
    "raise": _INSERT.format(on_conflict=""),
    "skip": _INSERT.format(on_conflict=f"{_SAME_KEY} DO NOTHING"),
    "update_priority": _INSERT.format(
        on_conflict=f"{_SAME_KEY} DO UPDATE SET priority = max(priority, excluded.priority)"
    ),
}


def insert_jobs(
    connection: Connection, new: NormedEnqueueParam, on_conflict: OnConflict, now: int
) -> list[JobId | None]:
    """Insert all or, if one is refused, none; return the ids, with None where a job was skipped."""
    statement = _STATEMENTS[on_conflict]
    ids: list[JobId | None] = []
    try:
        for row in _rows(new, now):
            ids.append(execute(connection, statement, **row).scalar_one_or_none())
    except IntegrityError as error:
        if "dedupe_key" not in str(error.orig):
            raise
        raise DuplicateJobError(new.dedupe_key) from error
    return ids


def _rows(new: NormedEnqueueParam, now: int) -> list[dict[str, object]]:
    return [
        {
            "entrypoint": entrypoint,
            "payload": payload,
            "priority": priority,
            "execute_after": now + delay // MICROSECOND,
            "dedupe_key": dedupe_key,
            "headers": None if headers is None else to_json(headers).decode(),
            "now": now,
        }
        for entrypoint, payload, priority, delay, dedupe_key, headers in zip(
            new.entrypoint,
            new.payload,
            new.priority,
            new.execute_after,
            new.dedupe_key,
            new.headers,
            strict=True,
        )
    ]
