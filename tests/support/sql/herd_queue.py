"""What a worker's loop needs of the jobs: the next due one, and a word about how its pass ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import instance
from gpuherd.adapters.sql.service_tables import is_pending, job
from gpuherd.adapters.stores.job_store import SqlJobs, put_back
from gpuherd.domain.job import Done, Snooze
from gpuherd.ports.clock_port import Clock

# A job that is due again after no time at all would run infinitely often in no time: this clock stands still.
SOONEST = timedelta(milliseconds=1)
_DUE = (
    sa.select(job.c.id, job.c.kind, job.c.priority)
    .where(is_pending, job.c.due_at <= sa.bindparam("now", type_=job.c.due_at.type))
    .where(job.c.kind == sa.func.coalesce(sa.bindparam("kind"), job.c.kind))
    .order_by(job.c.priority.desc(), job.c.id)
)
_NEXT_DUE = sa.select(sa.func.min(job.c.due_at)).where(is_pending)
_NEXT_END = sa.select(
    sa.select(sa.func.min(instance.c.due_at)).scalar_subquery(),
    sa.select(sa.func.min(instance.c.use_look_at)).scalar_subquery(),
)


@dataclass(frozen=True)
class QueuedJob:
    """A job that is due."""

    job_id: str
    kind: str
    priority: int


class HerdQueue:
    """Higher priority first, then older first, as the engine has it."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock
        self._jobs = SqlJobs(database, clock)
        # Picked, and perhaps not marked as started yet.
        self._picked: set[str] = set()

    def due(self, kind: str | None = None) -> QueuedJob | None:
        """Return the next job that is due, of that kind if one is named."""
        values = {"now": self._clock.now(), "kind": kind}
        for row in self._database._read(lambda c: c.execute(_DUE, values).all()):
            if row.id not in self._picked:
                return QueuedJob(row.id, row.kind, row.priority)
        return None

    def pick(self, kind: str | None = None) -> QueuedJob | None:
        """Take the next job that is due, of that kind if one is named."""
        found = self.due(kind)
        if found is not None:
            self._picked.add(found.job_id)
        return found

    def next_due(self) -> datetime | None:
        """Return when the next job falls due."""
        found: datetime | None = self._database._read(lambda c: c.execute(_NEXT_DUE).scalar())
        return found

    def next_end(self) -> datetime | None:
        """Return when the next instance must be looked at, because something of it ends."""
        (row,) = self._database._read(lambda c: c.execute(_NEXT_END).all())
        return min(filter(None, row), default=None)

    async def finish(self, it: QueuedJob, outcome: Done | Snooze) -> None:
        """Let a job that has not ended run again after a while, or at once if woken meanwhile."""
        self._picked.discard(it.job_id)
        if isinstance(outcome, Snooze):
            await self._jobs.snooze(it.job_id, max(outcome.delay, SOONEST))

    def recover(self) -> None:
        """Give back what a process ran that is no more."""
        self._database.write_now(lambda c: put_back(c, self._clock.now()))
