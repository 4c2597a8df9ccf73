"""What a worker's loop needs of the queue: the next due job, and a way to put it back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.prepared_statements import PreparedStatement
from gpuherd.adapters.sql.rental_tables import instance
from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.service_tables import job
from gpuherd.domain.job import Done, Snooze
from gpuherd.ports.clock_port import Clock

QUEUED, PICKED = "queued", "picked"
# What is put back for no time at all would happen infinitely often in no time: this clock stands still.
SOONEST = timedelta(milliseconds=1)
_DUE = PreparedStatement(
    sa.select(queue.c.id, queue.c.payload, queue.c.entrypoint, queue.c.priority)
    .where(queue.c.execute_after <= sa.bindparam("now", type_=queue.c.execute_after.type))
    .where(queue.c.status == sa.literal_column("'queued'"))
    .where(queue.c.entrypoint == sa.func.coalesce(sa.bindparam("kind"), queue.c.entrypoint))
    .order_by(queue.c.priority.desc(), queue.c.id)
    .limit(1)
)
_NEXT_DUE = PreparedStatement(
    sa.select(sa.func.min(queue.c.execute_after)).where(queue.c.status == sa.literal_column("'queued'"))
)
_NEXT_END = PreparedStatement(
    sa.select(
        sa.select(sa.func.min(instance.c.due_at)).scalar_subquery(),
        sa.select(sa.func.min(instance.c.use_look_at)).scalar_subquery(),
    )
)


@dataclass(frozen=True)
class QueuedJob:
    """A job that is due."""

    id: int
    job_id: str
    kind: str
    priority: int


class HerdQueue:
    """Higher priority first, then older first, as the engine has it."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    def due(self, kind: str | None = None) -> QueuedJob | None:
        """Return the next job that is due, of that kind if one is named."""
        values = {"now": self._clock.now(), "kind": kind}
        found = self._database._read(lambda c: _DUE.all(c, values))
        if not found:
            return None
        (row,) = found
        return QueuedJob(row.id, row.payload.decode(), row.entrypoint, row.priority)

    def pick(self, kind: str | None = None) -> QueuedJob | None:
        """Take the next job that is due, of that kind if one is named."""
        found = self.due(kind)
        if found is not None:
            self._set(found, status=PICKED)
        return found

    def next_due(self) -> datetime | None:
        """Return when the next job falls due."""
        found: datetime | None = self._database._read(lambda c: _NEXT_DUE.scalar(c, {}))
        return found

    def next_end(self) -> datetime | None:
        """Return when the next instance must be looked at, because something of it ends."""
        (row,) = self._database._read(lambda c: _NEXT_END.all(c, {}))
        return min(filter(None, row), default=None)

    async def finish(self, it: QueuedJob, outcome: Done | Snooze) -> None:
        """Forget a job that has ended; let another run again after a while, or at once if woken meanwhile."""
        now = self._clock.now()

        def put_back(connection: sa.Connection) -> None:
            if isinstance(outcome, Done):
                connection.execute(sa.delete(queue).where(queue.c.id == it.id))
                return
            woken = connection.execute(sa.select(job.c.woken).where(job.c.queue_id == it.id)).scalar()
            after = now if woken else now + max(outcome.delay, SOONEST)
            changes = {"status": QUEUED, "execute_after": after}
            connection.execute(sa.update(queue).where(queue.c.id == it.id).values(changes))

        await self._database.write(put_back, wakes_workers=True)

    def recover(self) -> None:
        """Give back what a process had picked that is no more."""
        self._database.write_now(lambda c: c.execute(sa.update(queue).values(status=QUEUED)).rowcount)

    def _set(self, it: QueuedJob, **values: object) -> None:
        statement = sa.update(queue).where(queue.c.id == it.id).values(values)
        self._database.write_now(lambda c: c.execute(statement).rowcount)
