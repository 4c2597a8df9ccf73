"""What a worker's loop needs of the queue, in memory: the next due job, and a way to put it back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gpuherd.ports.clock_port import Clock
from tests.support.memory.tables import PICKED, QUEUED, QueueRow, Tables

# What is put back for no time at all would happen infinitely often in no time: this clock stands still.
SOONEST = timedelta(milliseconds=1)


class MemoryQueue:
    """Higher priority first, then older first, as the engine has it."""

    def __init__(self, tables: Tables, clock: Clock):
        self._tables = tables
        self._clock = clock

    def pick(self) -> QueueRow | None:
        """Take the next job that is due."""
        now = self._clock.now()
        due = [
            row for row in self._tables.queue.values() if row.status == QUEUED and row.execute_after <= now
        ]
        if not due:
            return None
        chosen = min(due, key=lambda row: (-row.priority, row.id))
        # Not a transaction: whoever picks need not be woken by it.
        self._tables.queue[chosen.id] = replace(chosen, status=PICKED)
        return chosen

    def next_due(self) -> datetime | None:
        """Return when the next job falls due."""
        waiting = [row.execute_after for row in self._tables.queue.values() if row.status == QUEUED]
        return min(waiting, default=None)

    async def done(self, row: QueueRow) -> None:
        """Forget a job that has reached its end."""
        with self._tables as tables:
            tables.drop(tables.queue, row.id)

    async def put_back(self, row: QueueRow, delay: timedelta) -> None:
        """Let a job run again after a while, or at once if somebody rang meanwhile."""
        with self._tables as tables:
            now = self._clock.now()
            job = tables.jobs.get(row.job_id)
            after = now if job is not None and job.woken else now + max(delay, SOONEST)
            tables.put(tables.queue, row.id, replace(row, status=QUEUED, execute_after=after))

    def recover(self) -> None:
        """Give back what a process had picked that is no more."""
        with self._tables as tables:
            for queue_id, row in tables.queue.items():
                if row.status == PICKED:
                    tables.put(tables.queue, queue_id, replace(row, status=QUEUED))
