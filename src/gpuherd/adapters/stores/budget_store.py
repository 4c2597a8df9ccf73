"""Budgets: rows, sums, and what a create promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.ledger_tables import (
    IS_OPEN,
    cost_centre,
    ledger_day,
    ledger_label,
    meter,
    spending_budget,
)
from gpuherd.adapters.sql.ledger_tables import (
    spending_budget as table,
)
from gpuherd.adapters.sql.rental_tables import UNBILLED, instance, instance_label
from gpuherd.adapters.sql.sql_types import Doc, to_micros
from gpuherd.adapters.stores import ledger_sql
from gpuherd.adapters.stores.audit_store import append_audit_record, lock_audit_log
from gpuherd.adapters.stores.event_store import append_account_events
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.leader_fence import FencedDatabase
from gpuherd.adapters.stores.ledger_report import last_look
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import Conflict, NotFound, StaleWrite
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.domain.instance.instance_state import may_end
from gpuherd.domain.instance.lease import EndAction
from gpuherd.domain.money.budget import (
    BUDGETS_MAX,
    ENDLESS,
    AtLimit,
    Budget,
    BudgetRules,
    BudgetScope,
    Demand,
    Promised,
    ScopeKind,
    Spending,
    check_lease,
    demand_of,
    judge,
)
from gpuherd.domain.money.period import BudgetPeriod, resets_at
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.event_port import AccountEvent
from gpuherd.ports.instance_port import Change


def budget_row(it: Budget) -> Doc:
    return {
        "id": it.id,
        "name": it.name,
        "scope_kind": it.scope.kind.value,
        "scope_key": it.scope.key,
        "scope_value": it.scope.value,
        "amount_nusd": it.amount,
        "period": it.period.value,
        "warn_percent": _words(it.warn_percent),
        "at_limit": it.at_limit.value,
        "strict": it.strict,
        "created_at": it.created_at,
        "period_start": it.period_start,
        "told": _words(it.told),
        "exhausted": it.exhausted,
        "version": it.version,
    }


def budget_of(row: Any) -> Budget:
    return Budget(
        id=row.id,
        name=row.name,
        scope=BudgetScope(ScopeKind(row.scope_kind), row.scope_key, row.scope_value),
        amount=row.amount_nusd,
        period=BudgetPeriod(row.period),
        created_at=row.created_at,
        period_start=row.period_start,
        warn_percent=_numbers(row.warn_percent),
        at_limit=AtLimit(row.at_limit),
        strict=row.strict,
        told=_numbers(row.told),
        exhausted=row.exhausted,
        version=row.version,
    )


def read_budgets(connection: sa.Connection) -> tuple[Budget, ...]:
    """Return all, by name."""
    rows = connection.execute(sa.select(spending_budget).order_by(spending_budget.c.name))
    return tuple(map(budget_of, rows))


def _words(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def _numbers(words: str) -> tuple[int, ...]:
    return tuple(map(int, words.split()))


HELD = sa.text("gpus > 0")
_SECOND = 1_000_000
_NANO_OF_MICRO = 1000


def spending_of(connection: sa.Connection, budget: Budget, now: datetime) -> Spending:
    """Sum up the days of the period that have ended spans, and what goes on."""
    period = budget.period_at(now)
    centres = _centres(budget.scope)
    days = sa.select(sa.func.coalesce(sa.func.sum(ledger_day.c.amount_nusd), 0)).where(
        ledger_day.c.day >= period.begin.date(),
        ledger_day.c.day < period.end.date(),
        *([] if centres is None else [ledger_day.c.centre_id.in_(centres)]),
    )
    ended = int(connection.execute(days).scalar_one())
    values = ledger_sql.moments(period, now, now)
    amount, hourly = connection.execute(_open(centres), values).one()
    return Spending(ended + int(amount), int(hourly), last_look(connection))


def _open(centres: sa.Select[Any] | None) -> sa.Select[Any]:
    return sa.select(
        sa.func.coalesce(sa.func.sum(ledger_sql.OPEN_AMOUNT), 0),
        sa.func.coalesce(sa.func.sum(meter.c.rate_nusd_h), 0),
    ).where(IS_OPEN, *([] if centres is None else [meter.c.centre_id.in_(centres)]))


def promised_of(
    connection: sa.Connection, budget: Budget, now: datetime, without: str | None = None
) -> Promised:
    """Sum up what instances in the scope will cost that is in no span yet, but for one of them."""
    others = [] if without is None else [instance.c.id != without]
    if budget.strict:
        values = {"now_at": to_micros(now), "until_reset_s": int(_until_reset(budget, now).total_seconds())}
        leased = connection.execute(_leased(budget.scope, others), values).scalar_one()
        return Promised(leased=int(leased) * _NANO_OF_MICRO // 3600)
    rate = sa.func.coalesce(
        sa.func.sum(instance.c.micro_usd * _NANO_OF_MICRO - instance.c.cost_rate_nusd_h), 0
    )
    query = sa.select(rate).where(sa.text(UNBILLED), *in_scope(budget.scope), *others)
    return Promised(unbilled_hourly=int(connection.execute(query).scalar_one()))


def _leased(scope: BudgetScope, others: list[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    """Sum up micro-dollars an hour times seconds, to the next second up."""
    left = ledger_sql.greatest(
        ledger_sql.micros(instance.c.lease_ends_at) - ledger_sql.NOW, ledger_sql.number(0)
    )
    seconds = sa.case(
        (
            instance.c.lease_ends_at.is_not(None),
            (left + ledger_sql.number(_SECOND - 1)) // ledger_sql.number(_SECOND),
        ),
        else_=sa.func.coalesce(instance.c.lease_s, sa.bindparam("until_reset_s", type_=sa.BigInteger)),
    )
    total = sa.func.coalesce(sa.func.sum(instance.c.micro_usd * seconds), 0)
    return sa.select(total).where(HELD, *in_scope(scope), *others)


def _until_reset(budget: Budget, now: datetime) -> timedelta:
    """Return for how long something without an end is taken to cost money."""
    end = resets_at(budget.period, now)
    return ENDLESS if end is None else end - now


def in_scope(scope: BudgetScope) -> list[sa.ColumnElement[bool]]:
    """Return which instances are meant."""
    match scope.kind:
        case ScopeKind.ALL:
            return []
        case ScopeKind.KEY:
            return [instance.c.owner == scope.key]
        case ScopeKind.LABEL:
            labelled = sa.select(instance_label.c.instance_id).where(
                instance_label.c.key == scope.key, instance_label.c.value == scope.value
            )
            return [instance.c.id.in_(labelled)]


def _centres(scope: BudgetScope) -> sa.Select[Any] | None:
    """Return the cost centres that are meant; None for all, those of nobody included."""
    match scope.kind:
        case ScopeKind.ALL:
            return None
        case ScopeKind.KEY:
            return sa.select(cost_centre.c.id).where(cost_centre.c.owner == scope.key)
        case ScopeKind.LABEL:
            return sa.select(ledger_label.c.centre_id).where(
                ledger_label.c.key == scope.key, ledger_label.c.value == scope.value
            )


def check_budgets(connection: sa.Connection, change: Change, now: datetime) -> None:
    """Raise `BudgetExhausted` if this change would take a budget over its amount.

    Two of them at once cannot both be the last that fits, for the same reason as with the limits of a key.
    """
    if change.judged_by is not None:
        demand = demand_of(change.instance, now)
        judge_demand(connection, demand, change.judged_by, now, without=change.instance.id)


def judge_demand(
    connection: sa.Connection, demand: Demand, rules: BudgetRules, now: datetime, without: str | None = None
) -> None:
    """Raise what an instance with this demand hears; the instance `without` counts as it will be."""
    budgets = [it for it in read_budgets(connection) if it.scope.includes(demand.owner, demand.labels)]
    if rules.only_strict:
        budgets = [it for it in budgets if it.strict]
    for it in budgets:
        check_lease(it, demand)
    for it in budgets:
        if it.is_binding:
            # What is promised comes first: what begins to cost in between is counted twice, never not at all.
            promised = promised_of(connection, it, now, without)
            judge(it, spending_of(connection, it, now), promised, demand, rules, now)


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
            await self._database.write(work, audited=audit_record is not None)
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
