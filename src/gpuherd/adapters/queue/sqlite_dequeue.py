"""Which jobs a queue manager may take now on SQLite, and the taking of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from pgqueuer.domain.models import Job
from sqlalchemy import Connection

from gpuherd.adapters.queue.sqlite_rows import MICROSECOND, execute, in_order, job_of

# From here on, sorting all that is due costs more than walking down the queue in order.
SORT_LIMIT = 200

# The first due time of each kind is one step into an index, however many jobs are queued.
_FIRST_DUE = "(SELECT min(execute_after) FROM pgqueuer WHERE status = 'queued' AND entrypoint = :kind_{n})"
_ANY_STALE = """EXISTS (SELECT 1 FROM pgqueuer WHERE status = 'picked' AND heartbeat <= :stale
                        AND execute_after <= :now AND entrypoint IN ({kinds}))"""
_HELD_BY = (
    "SELECT count(*) FROM pgqueuer"
    " WHERE status = 'picked' AND queue_manager_id = :manager AND entrypoint IN :kinds"
)
_PICKED_OF_KIND = "SELECT count(*) FROM pgqueuer WHERE status = 'picked' AND entrypoint = :kind"
_COUNT_DUE = """
    SELECT count(*) FROM (SELECT 1 FROM pgqueuer
        WHERE status = 'queued' AND entrypoint IN :kinds AND execute_after <= :now LIMIT :most)
"""
_DUE = """
    SELECT priority, id FROM pgqueuer {index}
    WHERE status = 'queued' AND entrypoint IN :kinds AND execute_after <= :now
    ORDER BY priority DESC, id LIMIT :most
"""
# By time: visits only what is due, however much is asleep, and sorts it.
_FEW_DUE = _DUE.format(index="")
# In order: stops when it has enough. SQLite would go by time here too, so it is told not to.
_MANY_DUE = _DUE.format(index="INDEXED BY pgqueuer_ready")
_STALE = """
    SELECT priority, id FROM pgqueuer
    WHERE status = 'picked' AND heartbeat <= :stale AND execute_after <= :now AND entrypoint IN :kinds
    ORDER BY priority DESC, id LIMIT :most
"""
_TAKE = """
    UPDATE pgqueuer SET status = 'picked', updated = :now, heartbeat = :now, queue_manager_id = :manager
    WHERE id IN :ids RETURNING *
"""


@dataclass(frozen=True)
class DequeueRequest:
    """What a queue manager asks for: so many jobs, of these kinds (0: no limit of its own)."""

    most: int
    limits: Mapping[str, int]
    manager: str
    held_max: int | None
    heartbeat_timeout: timedelta

    def stale(self, now: int) -> int:
        """Return the heartbeat at which a picked job counts as abandoned."""
        return now - self.heartbeat_timeout // MICROSECOND


@dataclass(frozen=True)
class Poll:
    """What a look at the queue has shown: whether a job can be taken now, and when the next one falls due."""

    has_work: bool
    first_due: int | None


def poll(connection: Connection, request: DequeueRequest, now: int) -> Poll:
    """Look whether a write may be worth it. Only a hint: what is taken is decided inside the write."""
    kinds = {f"kind_{n}": kind for n, kind in enumerate(request.limits)}
    *firsts, stale = connection.exec_driver_sql(
        _poll_statement(len(kinds)), {**kinds, "now": now, "stale": request.stale(now)}
    ).one()
    first_due = min((first for first in firsts if first is not None), default=None)
    is_due = bool(stale) or (first_due is not None and first_due <= now)
    return Poll(is_due and _room(connection, request) > 0, first_due)


@cache
def _poll_statement(kinds: int) -> str:
    firsts = ", ".join(_FIRST_DUE.format(n=n) for n in range(kinds))
    return f"SELECT {firsts}, " + _ANY_STALE.format(kinds=", ".join(f":kind_{n}" for n in range(kinds)))


def take(connection: Connection, request: DequeueRequest, now: int) -> list[Job]:
    """Mark the best of the due and of the abandoned jobs as picked, and return them in order."""
    room = _room(connection, request)
    if room < 1:
        return []
    found = _due(connection, request, now, room) + _abandoned(connection, request, now, room)
    found.sort()
    ids = [job_id for _, job_id in found[:room]]
    if not ids:
        return []
    taken = execute(connection, _TAKE, now=now, manager=request.manager, ids=ids)
    return in_order(job_of(row) for row in taken)


def _room(connection: Connection, request: DequeueRequest) -> int:
    if request.held_max is None:
        return request.most
    found = execute(connection, _HELD_BY, manager=request.manager, kinds=list(request.limits))
    held: int = found.scalar_one()
    return min(request.most, request.held_max - held)


def _due(connection: Connection, request: DequeueRequest, now: int, room: int) -> list[tuple[int, int]]:
    unlimited = [kind for kind, limit in request.limits.items() if limit <= 0]
    found = _ranked(connection, unlimited, now, room)
    for kind, limit in request.limits.items():
        if limit > 0:
            picked = execute(connection, _PICKED_OF_KIND, kind=kind).scalar_one()
            found += _ranked(connection, [kind], now, min(room, limit - picked))
    return found


def _ranked(connection: Connection, kinds: list[str], now: int, most: int) -> list[tuple[int, int]]:
    if not kinds or most < 1:
        return []
    due = execute(connection, _COUNT_DUE, kinds=kinds, now=now, most=SORT_LIMIT).scalar_one()
    statement = _MANY_DUE if due == SORT_LIMIT else _FEW_DUE
    rows = execute(connection, statement, kinds=kinds, now=now, most=most)
    return [(-row.priority, row.id) for row in rows]


def _abandoned(connection: Connection, request: DequeueRequest, now: int, room: int) -> list[tuple[int, int]]:
    # The limit of a kind does not count here: the row already holds one of its places.
    rows = execute(
        connection, _STALE, kinds=list(request.limits), now=now, stale=request.stale(now), most=room
    )
    return [(-row.priority, row.id) for row in rows]
