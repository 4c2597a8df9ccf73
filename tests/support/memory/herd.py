"""A herd on the store in memory: the same stories in a fraction of the time, where no SQL is in question."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa

from gpuherd.bootstrap.service_parts import StorePorts
from gpuherd.domain.job import Done
from tests.support.herd import Herd
from tests.support.memory.budgets import MemoryBudgets
from tests.support.memory.costs import MemoryCosts
from tests.support.memory.instances.capacity import MemoryCapacityMemory
from tests.support.memory.instances.instances import MemoryInstances
from tests.support.memory.instances.leases import MemoryInstanceLeases
from tests.support.memory.instances.observations import MemoryObservations
from tests.support.memory.jobs.jobs import MemoryJobs
from tests.support.memory.jobs.queue import MemoryQueue
from tests.support.memory.orphans import MemoryOrphans
from tests.support.memory.outbox import MemoryFlags, MemoryOutbox
from tests.support.memory.ports import memory_ports
from tests.support.memory.store import MemoryStore
from tests.support.memory.tables import QUEUED, QueueRow, Tables


class MemoryHerd(Herd):
    """The contract suite of the store says that it is the same. What has a path outlives its process."""

    _disks: ClassVar[dict[Path, Tables]] = {}

    def _open(self, path: Path) -> StorePorts:
        self._memory = tables = self._disks.setdefault(path, Tables())
        clock, changed = self.clock, self.hub.changed
        instance_leases = MemoryInstanceLeases(tables, clock, self.ids, changed)
        instance_leases.release_all_leases()
        self._queue = MemoryQueue(tables, clock)
        flags = MemoryFlags(tables)
        return memory_ports(
            installation=self._installation(flags),
            hub=self.hub,
            history=self.history,
            flags=flags,
            instances=MemoryInstances(tables, clock, changed),
            observations=MemoryObservations(tables, changed),
            instance_leases=instance_leases,
            book=MemoryJobs(tables, clock),
            outbox=MemoryOutbox(tables, clock),
            orphans=MemoryOrphans(tables, clock, changed),
            costs=MemoryCosts(tables),
            capacity=MemoryCapacityMemory(tables),
            budgets=MemoryBudgets(tables, clock),
            reviewed_budgets=MemoryBudgets(tables, clock),
            metered_costs=MemoryCosts(tables),
        )

    def _recover(self) -> None:
        self._queue.recover()

    async def _run(self, row: QueueRow) -> None:  # type: ignore[override]
        picked = self._queue.pick()
        assert picked is not None and picked.id == row.id, "the first that is due is run"
        outcome = await self.run_job(row.job_id)
        if isinstance(outcome, Done):
            await self._queue.done(row)
        else:
            await self._queue.put_back(row, outcome.delay)

    def _due(self, now: datetime) -> list[Any]:
        due = [it for it in self._memory.queue.values() if it.status == QUEUED and it.execute_after <= now]
        return sorted(due, key=lambda it: (-it.priority, it.id))[:1]

    def _next_due(self) -> datetime | None:
        return self._queue.next_due()

    def rows(self, table: sa.Table) -> list[Any]:
        return MemoryStore(self._memory, self.clock)._rows()[table.name]

    def close(self) -> None:
        """Nothing is held open."""
