"""Budgets: how much may be spent in a period, in USD, and how far that is used up."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from gpuherd.contract.codec.model import Model
from gpuherd.contract.codec.values import LeftOutIfNone, OneOf

Period = Annotated[str, OneOf(("day", "week", "month", "total"))]
AtLimit = Annotated[str, OneOf(("warn", "block", "stop", "delete"))]
BudgetState = Annotated[str, OneOf(("ok", "warned", "exhausted"))]


class BudgetScope(Model):
    """Whose costs count: one of the three."""

    all: LeftOutIfNone[bool]  # everything on the account
    key: LeftOutIfNone[str]  # what was rented with the key of this id
    label: LeftOutIfNone[Mapping[str, str]]  # what has this label


class Budget(Model, needs=("id", "name")):
    """A budget, and what is spent of it."""

    id: str
    name: str
    scope: BudgetScope
    amount: Decimal  # for each period
    period: Period  # by the calendar in UTC, weeks from Monday
    warn_percent: tuple[int, ...]
    at_limit: AtLimit
    strict: bool  # everything in it needs a lease, and whole leases count
    spent: Decimal  # in this period, with what goes on up to now
    hourly_now: Decimal  # what goes on costs this an hour
    resets_at: datetime | None  # None of a total
    state: BudgetState
    created_at: datetime


class Budgets(Model, needs=("budgets",)):
    """All budgets, by name."""

    budgets: tuple[Budget, ...]
    total: int


class BudgetRemoved(Model):
    """A budget that is no more."""

    id: str
    removed: bool


class BudgetNotice(Model):
    """How far a budget is used up."""

    budget_id: str
    name: str
    scope: BudgetScope
    amount: Decimal
    period: Period
    spent: Decimal
    hourly_now: Decimal
    percent: int | None  # that was reached; of a warning only
    at_limit: AtLimit
