"""Add, change, remove and read budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from gpuherd.contract import money_models
from gpuherd.contract.money_models import BudgetRemoved
from gpuherd.domain.api_key import ADMIN_ID, Caller
from gpuherd.domain.errors import (
    FieldProblem,
    InvalidRequest,
    NotFound,
    StaleWrite,
)
from gpuherd.domain.money.budget import (
    ID_PREFIX,
    WARN_PERCENT,
    AtLimit,
    Budget,
    BudgetRules,
    BudgetScope,
    ScopeKind,
    changed,
)
from gpuherd.domain.money.period import BudgetPeriod, period_at
from gpuherd.ports.access_port import ApiKeys
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.costs_port import Budgets
from gpuherd.usecases.money.judge_budgets import BudgetCache, BudgetEvents
from gpuherd.usecases.views.money_view import budget_audit_text, describe_budget

log = structlog.get_logger()
AUDIT_ACTION = "budget.create"


@dataclass(frozen=True)
class BudgetRequest:
    """A budget as somebody wants it."""

    name: str
    scope: BudgetScope
    amount: int
    period: BudgetPeriod
    warn_percent: tuple[int, ...] = WARN_PERCENT
    at_limit: AtLimit = AtLimit.BLOCK
    strict: bool = False


@dataclass(frozen=True)
class AddBudget:
    """The use case."""

    budgets: Budgets
    cache: BudgetCache
    keys: ApiKeys
    clock: Clock
    ids: Ids

    async def __call__(self, wanted: BudgetRequest, caller: Caller) -> Budget:
        """Make a budget. It counts what its period has cost already."""
        await check_scope(wanted.scope, self.keys)
        now = self.clock.now()
        budget = Budget(
            id=self.ids.new(ID_PREFIX),
            created_at=now,
            period_start=period_at(wanted.period, now).begin,
            **vars(wanted),
        )
        record = caller.audit_record(AUDIT_ACTION, budget.id, now, after=budget_audit_text(budget))
        await self.budgets.add(budget, record)
        await self.cache.refresh()
        log.info("budget.created", budget_id=budget.id, by=caller.key_id)
        return budget


async def check_scope(scope: BudgetScope, keys: ApiKeys) -> None:
    """Raise `InvalidRequest` for a key that does not exist: a budget for it would guard nothing."""
    if scope.kind is not ScopeKind.KEY or scope.key == ADMIN_ID:
        return
    try:
        await keys.get(scope.key)
    except NotFound:
        words = f"scope.key: there is no key {scope.key!r}"
        raise InvalidRequest([FieldProblem("scope", "INVALID_SCOPE", words)]) from None


AUDIT_ACTION_change = "budget.change"


# Each try loses only against somebody else's success.
WRITE_TRIES_MAX = 20


@dataclass(frozen=True, kw_only=True)
class ChangeBudget:
    """The use case."""

    budgets: Budgets
    cache: BudgetCache
    keys: ApiKeys
    budget_events: BudgetEvents
    rules: BudgetRules
    clock: Clock

    async def __call__(self, id_or_name: str, values: Mapping[str, Any], caller: Caller) -> Budget:
        """Let a budget have these values. A higher amount sets one free that is used up, if it is enough."""
        if "scope" in values:
            await check_scope(values["scope"], self.keys)
        for _ in range(WRITE_TRIES_MAX):
            before = await self.budgets.get(id_or_name)
            try:
                saved = await self._write(before, replace(before, **values), caller)
            except StaleWrite:
                continue
            await self.cache.refresh()
            log.info("budget.changed", budget_id=saved.id, by=caller.key_id)
            return saved
        raise StaleWrite(f"budget {id_or_name!r} is changing too fast; try again")

    async def _write(self, before: Budget, wanted: Budget, caller: Caller) -> Budget:
        now = self.clock.now()
        spending = await self.budgets.spending(wanted, now)
        found = changed(before, wanted, spending, self.rules, now)
        told = self.budget_events.told(found.budget, spending, found.news, now)
        record = caller.audit_record(
            AUDIT_ACTION_change, before.id, now, budget_audit_text(before), budget_audit_text(wanted)
        )
        return await self.budgets.save(found.budget, told, record)


AUDIT_ACTION_remove = "budget.delete"


@dataclass(frozen=True)
class RemoveBudget:
    """The use case. What the budget has ended stays ended."""

    budgets: Budgets
    cache: BudgetCache
    clock: Clock

    async def __call__(self, id_or_name: str, caller: Caller) -> BudgetRemoved:
        """Forget a budget; `NotFound` if there is none."""
        known = await self.budgets.get(id_or_name)
        record = caller.audit_record(
            AUDIT_ACTION_remove, known.id, self.clock.now(), budget_audit_text(known)
        )
        await self.budgets.remove(known.id, record)
        await self.cache.refresh()
        log.info("budget.removed", budget_id=known.id, by=caller.key_id)
        return BudgetRemoved(id=known.id, removed=True)


@dataclass(frozen=True)
class ReadBudgets:
    """The use case. What is spent is summed up at the moment of the question."""

    budgets: Budgets
    rules: BudgetRules
    clock: Clock

    async def all(self) -> money_models.Budgets:
        """Return all, by name."""
        found = [await self.shown(it) for it in await self.budgets.list_all()]
        return money_models.Budgets(budgets=tuple(found), total=len(found))

    async def one(self, id_or_name: str) -> money_models.Budget:
        """Return one; `NotFound` if there is none."""
        return await self.shown(await self.budgets.get(id_or_name))

    async def is_strict_for(self, owner: str) -> bool:
        """Return True if a strict budget covers all that this owner rents, whatever its labels."""
        return any(it.strict and it.scope.includes(owner, {}) for it in await self.budgets.list_all())

    async def shown(self, budget: Budget) -> money_models.Budget:
        now = self.clock.now()
        return describe_budget(budget, await self.budgets.spending(budget, now), self.rules, now)
