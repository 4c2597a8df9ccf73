"""Budgets: what people decide about them, and the review that tells and ends."""

from __future__ import annotations

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import BudgetServices
from gpuherd.usecases.budgets.add import AddBudget
from gpuherd.usecases.budgets.change import ChangeBudget
from gpuherd.usecases.budgets.events import BudgetEvents
from gpuherd.usecases.budgets.read import ReadBudgets
from gpuherd.usecases.budgets.remove import RemoveBudget
from gpuherd.usecases.budgets.review import ReviewBudgets


def build_budgets(ports: Ports, values: Values, shared: Shared) -> BudgetServices:
    """Return what the outside may ask about budgets."""
    stores, clock, cache = ports.stores, ports.clock, shared.budget_cache
    return BudgetServices(
        read=ReadBudgets(stores.budgets, values.budget_rules, clock),
        add=AddBudget(stores.budgets, cache, stores.keys, clock, ports.ids),
        change=ChangeBudget(
            budgets=stores.budgets,
            cache=cache,
            keys=stores.keys,
            budget_events=BudgetEvents(shared.event_recorder),
            rules=values.budget_rules,
            clock=clock,
        ),
        remove=RemoveBudget(stores.budgets, cache, clock),
    )


def build_review(ports: Ports, values: Values, shared: Shared) -> ReviewBudgets:
    """Return what looks after the budgets."""
    stores = ports.stores
    return ReviewBudgets(
        budgets=stores.reviewed_budgets,
        cache=shared.budget_cache,
        jobs=stores.book,
        job_factory=shared.job_factory,
        budget_events=BudgetEvents(shared.event_recorder),
        rules=values.budget_rules,
        clock=ports.clock,
    )
