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
    BudgetScope,
    ScopeKind,
    changed,
)
from gpuherd.domain.money.period import BudgetPeriod, period_at
from gpuherd.usecases.money.judge_budgets import budget_events
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.money_view import budget_audit_text, describe_budget

log = structlog.get_logger()
ADDED = "budget.create"
CHANGED = "budget.change"
REMOVED = "budget.delete"
# Each try loses only against the success of another request.
WRITE_TRIES_MAX = 20


@dataclass(frozen=True)
class BudgetRequest:
    """The values of a new budget."""

    name: str
    scope: BudgetScope
    amount: int
    period: BudgetPeriod
    warn_percent: tuple[int, ...] = WARN_PERCENT
    at_limit: AtLimit = AtLimit.BLOCK
    strict: bool = False


async def add_budget(services: Services, wanted: BudgetRequest, caller: Caller) -> Budget:
    """Add a budget. It counts what its period has cost already."""
    await _check_scope(services, wanted.scope)
    now = services.clock.now()
    budget = Budget(
        id=services.ids.new(ID_PREFIX),
        created_at=now,
        period_start=period_at(wanted.period, now).begin,
        **vars(wanted),
    )
    record = caller.audit_record(ADDED, budget.id, now, after=budget_audit_text(budget))
    await services.stores.budgets.add(budget, record)
    await services.budget_cache.refresh()
    log.info("budget.created", budget_id=budget.id, by=caller.key_id)
    return budget


async def _check_scope(services: Services, scope: BudgetScope) -> None:
    """Raise `InvalidRequest` for a key that does not exist: a budget for it would guard nothing."""
    if scope.kind is not ScopeKind.KEY or scope.key == ADMIN_ID:
        return
    try:
        await services.stores.keys.get(scope.key)
    except NotFound:
        words = f"scope.key: there is no key {scope.key!r}"
        raise InvalidRequest([FieldProblem("scope", "INVALID_SCOPE", words)]) from None


async def change_budget(
    services: Services, id_or_name: str, values: Mapping[str, Any], caller: Caller
) -> Budget:
    """Change these values of a budget. A sufficiently higher amount frees a budget that is used up."""
    if "scope" in values:
        await _check_scope(services, values["scope"])
    for _ in range(WRITE_TRIES_MAX):
        before = await services.stores.budgets.get(id_or_name)
        try:
            saved = await _write_change(services, before, replace(before, **values), caller)
        except StaleWrite:
            continue
        await services.budget_cache.refresh()
        log.info("budget.changed", budget_id=saved.id, by=caller.key_id)
        return saved
    raise StaleWrite(f"budget {id_or_name!r} is changing too fast; try again")


async def _write_change(services: Services, before: Budget, wanted: Budget, caller: Caller) -> Budget:
    now = services.clock.now()
    spending = await services.stores.budgets.spending(wanted, now)
    found = changed(before, wanted, spending, services.rules.budget_rules, now)
    told = budget_events(services, found.budget, spending, found.news, now)
    record = caller.audit_record(
        CHANGED, before.id, now, budget_audit_text(before), budget_audit_text(wanted)
    )
    return await services.stores.budgets.save(found.budget, told, record)


async def remove_budget(services: Services, id_or_name: str, caller: Caller) -> BudgetRemoved:
    """Remove a budget. What it has ended stays ended."""
    known = await services.stores.budgets.get(id_or_name)
    record = caller.audit_record(REMOVED, known.id, services.clock.now(), budget_audit_text(known))
    await services.stores.budgets.remove(known.id, record)
    await services.budget_cache.refresh()
    log.info("budget.removed", budget_id=known.id, by=caller.key_id)
    return BudgetRemoved(id=known.id, removed=True)


async def read_budgets(services: Services) -> money_models.Budgets:
    """Return all budgets by name, each with what is spent of it now."""
    found = [await show_budget(services, it) for it in await services.stores.budgets.list_all()]
    return money_models.Budgets(budgets=tuple(found), total=len(found))


async def read_budget(services: Services, id_or_name: str) -> money_models.Budget:
    """Return one budget; `NotFound` if no budget has this id or name."""
    return await show_budget(services, await services.stores.budgets.get(id_or_name))


async def is_strict_for(services: Services, owner: str) -> bool:
    """Return True if a strict budget covers all rentals of this owner, with any labels."""
    return any(it.strict and it.scope.includes(owner, {}) for it in await services.stores.budgets.list_all())


async def show_budget(services: Services, budget: Budget) -> money_models.Budget:
    """Return a budget with what is spent of it now."""
    now = services.clock.now()
    return describe_budget(
        budget, await services.stores.budgets.spending(budget, now), services.rules.budget_rules, now
    )
