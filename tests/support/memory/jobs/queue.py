"""What a worker's loop needs of the jobs, in memory: the next due one, and how its pass ended."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.ports.clock_port import Clock
from tests.support.memory.jobs.jobs import MemoryJobs
from tests.support.memory.tables import JobRow, Tables

# A job that is due again after no time at all would run infinitely often in no time: this clock stands still.
SOONEST = timedelta(milliseconds=1)


class MemoryQueue:
    """Higher priority first, then older first, as the engine has it."""

    def __init__(self, tables: Tables, clock: Clock):
        self._tables = tables
        self._clock = clock
        self._jobs = MemoryJobs(tables, clock)
        # Picked, and perhaps not marked as started yet.
        self._picked: set[str] = set()

    def pick(self) -> JobRow | None:
        """Take the next job that is due."""
        now = self._clock.now()
        due = [row for row in self._waiting() if row.due_at is not None and row.due_at <= now]
        if not due:
            return None
        chosen = min(due, key=lambda row: (-row.new.priority, row.new.id))
        self._picked.add(chosen.new.id)
        return chosen

    def next_due(self) -> datetime | None:
        """Return when the next job falls due."""
        return min((row.due_at for row in self._waiting() if row.due_at is not None), default=None)

    async def done(self, row: JobRow) -> None:
        """Note that the pass has ended, and the job with it."""
        self._picked.discard(row.new.id)

    async def put_back(self, row: JobRow, delay: timedelta) -> None:
        """Let a job run again after a while, or at once if somebody woke it meanwhile."""
        self._picked.discard(row.new.id)
        await self._jobs.snooze(row.new.id, max(delay, SOONEST))

    def recover(self) -> None:
        """Give back what a process ran that is no more."""
        self._jobs.put_back(lambda _: True)

    def _waiting(self) -> list[JobRow]:
        return [
            row for row in self._tables.jobs.values() if row.is_waiting and row.new.id not in self._picked
        ]
