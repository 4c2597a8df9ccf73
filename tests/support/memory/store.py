"""The store in memory in the shape in which the contract suite knows a store, SQL statements and all."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from gpuherd.domain.money.usage_span import CostSpan, CostSubject
from gpuherd.ports.clock_port import Ids
from tests.support.fake_clock import FakeClock
from tests.support.memory.budgets import MemoryBudgets
from tests.support.memory.costs import MemoryCosts, write_spans
from tests.support.memory.instances.capacity import MemoryCapacityMemory
from tests.support.memory.instances.instances import MemoryInstances
from tests.support.memory.instances.leases import MemoryInstanceLeases
from tests.support.memory.instances.observations import MemoryObservations
from tests.support.memory.jobs.jobs import MemoryJobs
from tests.support.memory.orphans import MemoryOrphans
from tests.support.memory.outbox import MemoryFlags, MemoryOutbox
from tests.support.memory.tables import Tables


class MemoryStore:
    """All ports on one set of tables, as one process has them."""

    # Like SQLite it has one writer, so nothing is ever just being written.
    database = SimpleNamespace(is_sqlite=True)

    def __init__(self, tables: Tables, clock: FakeClock, seed: int = 1):
        self.tables = tables
        self.clock = clock
        self.instances = MemoryInstances(tables, clock)
        self.instance_leases = MemoryInstanceLeases(tables, clock, Ids(clock, random.Random(seed)))
        self.observations = MemoryObservations(tables)
        self.outbox = MemoryOutbox(tables, clock)
        self.jobs = MemoryJobs(tables, clock)
        self.flags = MemoryFlags(tables)
        self.orphans = MemoryOrphans(tables, clock)
        self.costs = MemoryCosts(tables)
        self.budgets = MemoryBudgets(tables, clock)
        self.capacity = MemoryCapacityMemory(tables)

    async def write_spans(self, spans: Sequence[CostSpan], subjects: Mapping[str, CostSubject]) -> list[str]:
        """Write spans as a list does."""
        with self.tables as tables:
            return write_spans(tables, spans, subjects, self.clock.now())

    async def rows(self, table: sa.Table) -> list[Any]:
        """Return a whole table, with those columns by name that tests ask for."""
        return self._rows()[table.name]

    async def everything(self) -> dict[str, list[Any]]:
        """Return every row of every table, to see that nothing has changed."""
        return {name: sorted(rows, key=repr) for name, rows in self._rows().items()}

    def _rows(self) -> dict[str, list[Any]]:
        it = self.tables
        return {
            "installation": list(it.flags.items()),
            "instance": list(it.instances.values()),
            "claim": list(it.claims.items()),
            "attempt": list(it.attempts.values()),
            "event": list(it.events.values()),
            "delivery": list(it.deliveries.values()),
            "operation": list(it.operations.values()),
            "audit": list(it.audit.values()),
            "orphan": list(it.orphans.values()),
            "sighting": list(it.observations.values()),
            "meter": list(it.spans.values()),
            "bill": list(it.bill.values()),
            "spending_budget": list(it.budgets.values()),
            "list_record": list(it.lists.values()),
            "job": [
                SimpleNamespace(
                    id=job_id,
                    kind=row.new.kind,
                    instance_id=row.new.instance_id,
                    due_at=row.due_at,
                    state=row.state.value,
                    attempts=row.attempts,
                    row=row,
                )
                for job_id, row in it.jobs.items()
            ],
        }
