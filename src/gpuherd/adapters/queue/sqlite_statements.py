"""What the SQLite repository says to the database, besides inserting and picking."""

from __future__ import annotations

from typing import Final

from pgqueuer.domain.types import SortOrder

WOKEN = "SELECT woken FROM job WHERE queue_id = :id"
RETRY = (
    "UPDATE pgqueuer SET status = 'queued', execute_after = :execute_after, attempts = attempts + 1,"
    " updated = :now, queue_manager_id = NULL WHERE id = :id"
)
REQUEUE = (
    "UPDATE pgqueuer SET status = 'queued', execute_after = :now, attempts = 0, updated = :now,"
    " queue_manager_id = NULL WHERE id IN :ids AND status = 'failed'"
)
RECOVER = (
    "UPDATE pgqueuer SET status = 'queued', execute_after = :now, updated = :now, queue_manager_id = NULL"
    " WHERE status = 'picked'"
)
MARK_FAILED = (
    "UPDATE pgqueuer SET status = 'failed', updated = :now, queue_manager_id = NULL WHERE id IN :ids"
)
DELETE = "DELETE FROM pgqueuer WHERE id IN :ids"
DELETE_KINDS = "DELETE FROM pgqueuer WHERE entrypoint IN :kinds"
DELETE_ALL = "DELETE FROM pgqueuer"
HEARTBEAT = "UPDATE pgqueuer SET heartbeat = :now WHERE id IN :ids"
QUEUED = "SELECT EXISTS (SELECT 1 FROM pgqueuer WHERE status = 'queued' AND entrypoint IN :kinds)"
STATUSES = "SELECT id, status FROM pgqueuer WHERE id IN :ids ORDER BY id"
SIZES = (
    "SELECT count(*) AS count, priority, entrypoint, status FROM pgqueuer"
    " GROUP BY entrypoint, priority, status ORDER BY 1, 3, 2, 4"
)
FAILED: Final[dict[SortOrder, str]] = {
    "ASC": "SELECT * FROM pgqueuer WHERE status = 'failed' ORDER BY created, id LIMIT :limit",
    "DESC": "SELECT * FROM pgqueuer WHERE status = 'failed' ORDER BY created DESC, id DESC LIMIT :limit",
}
