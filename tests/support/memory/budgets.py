"""Budgets, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import Conflict, NotFound, StaleWrite
from gpuherd.domain.instance.instance import Goal, Instance
from gpuherd.domain.instance.instance_state import may_end
from gpuherd.domain.instance.lease import EndAction
from gpuherd.domain.instance.quota import usage_of
from gpuherd.domain.money.budget import BUDGETS_MAX, Budget, BudgetRules, Demand, Spending
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.event_port import AccountEvent
from tests.support.memory.budget_sums import judge_demand, spending_of
from tests.support.memory.orphans import tell
from tests.support.memory.tables import Tables


class MemoryBudgets:
    """The port `Budgets`."""

    def __init__(self, tables: Tables, clock: Clock):
        self._tables = tables
        self._clock = clock

    async def add(self, budget: Budget, audit_record: AuditRecord) -> None:
        with self._tables as tables:
            if len(tables.budgets) >= BUDGETS_MAX:
                raise Conflict("there are too many budgets", code="TOO_MANY_BUDGETS")
            self._refuse_taken(budget)
            tables.append_audit_record(audit_record)
            tables.insert(tables.budgets, budget.id, budget)

    async def list_all(self) -> tuple[Budget, ...]:
        return tuple(sorted(self._tables.budgets.values(), key=lambda it: it.name))

    async def get(self, id_or_name: str) -> Budget:
        named = {it.name: it for it in self._tables.budgets.values()}
        found = self._tables.budgets.get(id_or_name) or named.get(id_or_name)
        if found is None:
            raise NotFound(f"there is no budget {id_or_name!r}", code="BUDGET_NOT_FOUND")
        return found

    async def save(
        self, budget: Budget, events: Sequence[AccountEvent] = (), audit_record: AuditRecord | None = None
    ) -> Budget:
        saved = replace(budget, version=budget.version + 1)
        with self._tables as tables:
            self._refuse_taken(budget)
            known = tables.budgets.get(budget.id)
            if known is None or known.version != budget.version:
                raise StaleWrite(f"budget {budget.id} has changed since it was read")
            if audit_record is not None:
                tables.append_audit_record(audit_record)
            tables.put(tables.budgets, budget.id, saved)
            for it in events:
                tell(tables, it, self._clock.now())
        return saved

    async def remove(self, budget_id: str, audit_record: AuditRecord) -> None:
        await self.get(budget_id)
        with self._tables as tables:
            tables.append_audit_record(audit_record)
            tables.drop(tables.budgets, budget_id)

    async def spending(self, budget: Budget, now: datetime) -> Spending:
        return spending_of(self._tables, budget, now)

    async def judge(self, demand: Demand, rules: BudgetRules, now: datetime) -> None:
        judge_demand(self._tables, demand, rules, now)

    async def to_end(self, budget: Budget, limit: int) -> Sequence[Instance]:
        its = [row.instance for row in self._tables.instances.values()]
        return [it for it in its if _must_end(it, budget)][:limit]

    def _refuse_taken(self, budget: Budget) -> None:
        if any(it.name == budget.name and it.id != budget.id for it in self._tables.budgets.values()):
            raise Conflict(f"there is a budget {budget.name!r} already", code="BUDGET_EXISTS")


def _must_end(it: Instance, budget: Budget) -> bool:
    if not budget.scope.includes(it.owner, it.labels) or not may_end(it):
        return False
    used = usage_of(it)
    match budget.end_action:
        case EndAction.STOP:
            return used.gpus > 0 and it.goal is Goal.RUNNING
        case EndAction.DELETE:
            return it.goal is not Goal.DELETED and (used.gpus > 0 or used.hourly_usd > 0)
        case _:
            return False
