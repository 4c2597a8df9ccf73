"""Add a budget."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.api_key import ADMIN_ID
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.budgets.budget import ID_PREFIX, WARN_PERCENT, AtLimit, Budget, BudgetScope, ScopeKind
from gpuherd.domain.budgets.calendar import BudgetPeriod, period_at
from gpuherd.domain.errors import FieldProblem, InvalidRequest, NotFound
from gpuherd.ports.access import ApiKeys
from gpuherd.ports.costs import Budgets
from gpuherd.usecases.budgets.cache import BudgetCache
from gpuherd.usecases.describe.budget import budget_audit_text

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
