"""The port `Budgets`, in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

import sqlalchemy as sa

from gpuherd.adapters.sql.access.audit import append_audit_record, lock_audit_log
from gpuherd.adapters.sql.budgets.accept import judge_demand
from gpuherd.adapters.sql.budgets.rows import budget_of, budget_row, read_budgets
from gpuherd.adapters.sql.budgets.sums import HELD, in_scope, spending_of
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.events import append_account_events
from gpuherd.adapters.sql.mapping.instances import instance_of
from gpuherd.adapters.sql.replicas.leadership import FencedDatabase
from gpuherd.adapters.sql.schema.budget_tables import spending_budget as table
from gpuherd.adapters.sql.schema.tables import instance
from gpuherd.clock import Clock
from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.budgets.budget import BUDGETS_MAX, Budget
from gpuherd.domain.budgets.spending import BudgetRules, Demand, Spending
from gpuherd.domain.endings.terms import EndAction
from gpuherd.domain.errors import Conflict, NotFound, StaleWrite
from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lifecycle.due import may_end
from gpuherd.ports.events import AccountEvent

_IS_LIVE = instance.c.status != Status.FAILED.value
# In this form it is no question for the index of statuses, which has all that ever failed.
_HAS_FAILED = instance.c.status.not_in([it.value for it in Status if it is not Status.FAILED])
_STOPPED_WITH_DISK = sa.text("gpus = 0 AND micro_usd > 0")


class SqlBudgets:
    """The port `Budgets`."""

    def __init__(
        self,
        database: Database | FencedDatabase,
        clock: Clock,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
    ):
        self._database = database
        self._clock = clock
        self._announce = announce

    async def add(self, budget: Budget, audit_record: AuditRecord) -> None:
        def work(connection: sa.Connection) -> None:
            lock_audit_log(connection, audit_record)
            count = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            if count >= BUDGETS_MAX:
                raise Conflict(f"there are {count} budgets; remove one first", code="TOO_MANY_BUDGETS")
            _refuse_taken(connection, budget)
            append_audit_record(connection, audit_record)
            connection.execute(sa.insert(table).values(**budget_row(budget)))

        await self._database.write(work, audited=True)

    async def list_all(self) -> tuple[Budget, ...]:
        return await self._database.read(read_budgets)

    async def get(self, id_or_name: str) -> Budget:
        return await self._database.read(lambda c: _get(c, id_or_name))

    async def save(
        self, budget: Budget, events: Sequence[AccountEvent] = (), audit_record: AuditRecord | None = None
    ) -> Budget:
        now = self._clock.now()
        saved = replace(budget, version=budget.version + 1)

        def work(connection: sa.Connection) -> None:
            lock_audit_log(connection, audit_record)
            _refuse_taken(connection, budget)
            if audit_record is not None:
                append_audit_record(connection, audit_record)
            its = sa.update(table).where(table.c.id == budget.id, table.c.version == budget.version)
            if connection.execute(its.values(**budget_row(saved))).rowcount != 1:
                raise StaleWrite(f"budget {budget.id} has changed since it was read")
            append_account_events(connection, events, now)

        try:
            await self._database.write(work, wakes_workers=bool(events), audited=audit_record is not None)
        except sa.exc.IntegrityError as error:
            raise StaleWrite("another event of the account was numbered at the same moment") from error
        if events:
            self._announce([ACCOUNT])
        return saved

    async def remove(self, budget_id: str, audit_record: AuditRecord) -> None:
        def work(connection: sa.Connection) -> None:
            lock_audit_log(connection, audit_record)
            _get(connection, budget_id)
            append_audit_record(connection, audit_record)
            connection.execute(sa.delete(table).where(table.c.id == budget_id))

        await self._database.write(work, audited=True)

    async def spending(self, budget: Budget, now: datetime) -> Spending:
        return await self._database.read(lambda c: spending_of(c, budget, now))

    async def judge(self, demand: Demand, rules: BudgetRules, now: datetime) -> None:
        await self._database.read(lambda c: judge_demand(c, demand, rules, now))

    async def to_end(self, budget: Budget, limit: int) -> Sequence[Instance]:
        goals = {EndAction.STOP: [Goal.RUNNING], EndAction.DELETE: [Goal.RUNNING, Goal.STOPPED]}
        if budget.end_action is None:
            return []
        wanted = instance.c.goal.in_([it.value for it in goals[budget.end_action]])
        its = sa.select(instance).where(wanted, *in_scope(budget.scope))
        # One question for each index.
        queries = [its.where(HELD, _IS_LIVE).limit(limit)]
        if budget.end_action is EndAction.DELETE:
            queries.append(its.where(_STOPPED_WITH_DISK).limit(limit))
        # Of what has failed most has nothing left to end, and must not fill the places of what has.
        queries.append(its.where(HELD, _HAS_FAILED))

        def work(connection: sa.Connection) -> list[Instance]:
            rows = (row for query in queries for row in connection.execute(query))
            # guard: what has vanished takes nobody's place where a budget ends things
            return list(islice(filter(may_end, map(instance_of, rows)), limit))

        return await self._database.read(work)


def _get(connection: sa.Connection, id_or_name: str) -> Budget:
    query = sa.select(table).where(sa.or_(table.c.id == id_or_name, table.c.name == id_or_name))
    # One may be called what another's id is; ids come first.
    rows = sorted(connection.execute(query), key=lambda row: row.id != id_or_name)
    if not rows:
        raise NotFound(f"there is no budget {id_or_name!r}", code="BUDGET_NOT_FOUND")
    return budget_of(rows[0])


def _refuse_taken(connection: sa.Connection, it: Budget) -> None:
    """Names are checked under the lock of the audit log, and by an index besides."""
    query = sa.select(table.c.id).where(table.c.name == it.name, table.c.id != it.id)
    if connection.execute(query).first() is not None:
        raise Conflict(f"there is a budget {it.name!r} already", code="BUDGET_EXISTS")
