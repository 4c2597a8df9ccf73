"""Budgets: how much may be spent, and what happens when that is used up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpuherd.client.effects import Effects
from gpuherd.client.methods import Resource, api_method
from gpuherd.client.models.costs import Budget, BudgetRemoved
from gpuherd.client.paging import Items, items_of
from gpuherd.client.transport.wire import get, path_segment

Usd = Decimal | float | int | str
Scope = Mapping[str, Any]
EVERYTHING: Scope = {"all": True}


class BudgetMethods(Resource):
    """`herd.budgets`: for admins."""

    @api_method
    def list(self) -> Effects[Items[Budget]]:
        """Return all budgets by name, with what is spent of each."""
        return items_of((yield from self._caller.call(get("/api/budgets"))), "budgets", Budget.of)

    @api_method
    def get(self, budget: str | Budget) -> Effects[Budget]:
        """Return one, by its id or name."""
        return Budget.of((yield from self._caller.call(get(_path(budget)))))

    @api_method
    def add(
        self,
        name: str,
        amount: Usd,
        period: str = "month",
        *,
        scope: Scope = EVERYTHING,
        at_limit: str | None = None,
        warn_percent: Sequence[int] | None = None,
        strict: bool | None = None,
    ) -> Effects[Budget]:
        """Make a budget: `scope` is `{"all": True}`, `{"key": ID}` or `{"label": {"team": "nlp"}}`.

        `at_limit`: warn, block, stop or delete.
        """
        body = {"name": name, "amount": str(amount), "period": period, "scope": dict(scope)}
        more = _changes(at_limit=at_limit, warn_percent=warn_percent, strict=strict)
        return Budget.of((yield from self._caller.change("POST", "/api/budgets", {**body, **more})))

    @api_method
    def set(
        self,
        budget: str | Budget,
        *,
        amount: Usd | None = None,
        name: str | None = None,
        period: str | None = None,
        scope: Scope | None = None,
        at_limit: str | None = None,
        warn_percent: Sequence[int] | None = None,
        strict: bool | None = None,
    ) -> Effects[Budget]:
        """Change what is given; a higher amount sets a budget free that is used up, if it is enough."""
        body = _changes(
            name=name,
            amount=None if amount is None else str(amount),
            period=period,
            scope=None if scope is None else dict(scope),
            at_limit=at_limit,
            warn_percent=warn_percent,
            strict=strict,
        )
        return Budget.of((yield from self._caller.change("PATCH", _path(budget), body)))

    @api_method
    def remove(self, budget: str | Budget) -> Effects[BudgetRemoved]:
        """Remove one. What it has ended stays ended."""
        return BudgetRemoved.of((yield from self._caller.change("DELETE", _path(budget))))


def _path(budget: str | Budget) -> str:
    return f"/api/budgets/{path_segment(budget.id if isinstance(budget, Budget) else budget)}"


def _changes(
    at_limit: str | None, warn_percent: Sequence[int] | None, strict: bool | None, **others: Any
) -> dict[str, Any]:
    values = {
        **others,
        "atLimit": at_limit,
        "warnPercent": None if warn_percent is None else [*warn_percent],
        "strict": strict,
    }
    return {name: value for name, value in values.items() if value is not None}
