"""A budget: an amount for a part of what is rented, in a period, and what happens at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpuherd.domain.budgets.calendar import BudgetPeriod, period_at
from gpuherd.domain.costs.period import Period
from gpuherd.domain.endings.terms import EndAction

ID_PREFIX = "bud_"
WARN_PERCENT = (50, 80, 95)
# More than anybody needs, and few enough to look at all of them with each create.
BUDGETS_MAX = 200


class ScopeKind(StrEnum):
    """What a budget is about."""

    ALL = "all"
    KEY = "key"
    LABEL = "label"


class AtLimit(StrEnum):
    """What happens when a budget is used up; each includes those before it."""

    WARN = "warn"
    BLOCK = "block"
    STOP = "stop"
    DELETE = "delete"


class BudgetState(StrEnum):
    """How far a budget is used up in its present period."""

    OK = "ok"
    WARNED = "warned"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True)
class BudgetScope:
    """Whose costs count: everybody's, those of a key, or of what has a label."""

    kind: ScopeKind = ScopeKind.ALL
    # The id of the key, or the key of the label.
    key: str = ""
    # Of the label.
    value: str = ""

    def includes(self, owner: str, labels: Mapping[str, str]) -> bool:
        """Tell whether an instance of this owner with these labels is meant."""
        match self.kind:
            case ScopeKind.ALL:
                return True
            case ScopeKind.KEY:
                return owner == self.key
            case ScopeKind.LABEL:
                return labels.get(self.key) == self.value

    def __str__(self) -> str:
        match self.kind:
            case ScopeKind.ALL:
                return "everything"
            case ScopeKind.KEY:
                return f"key {self.key}"
            case ScopeKind.LABEL:
                return f"label {self.key}={self.value}"


@dataclass(frozen=True)
class Budget:
    """What was decided about a budget, and how far it is used up. Amounts are nano-dollars."""

    id: str
    name: str
    scope: BudgetScope
    amount: int
    period: BudgetPeriod
    created_at: datetime
    # The begin of the period that `told` and `exhausted` are about.
    period_start: datetime
    warn_percent: tuple[int, ...] = WARN_PERCENT
    at_limit: AtLimit = AtLimit.BLOCK
    # Every instance in the scope needs a lease, and its whole lease must fit.
    strict: bool = False
    # The percentages that were told of in this period.
    told: tuple[int, ...] = ()
    # Used up: it stays so until the period ends or the amount is raised.
    exhausted: bool = False
    version: int = 0

    @property
    def is_binding(self) -> bool:
        """Whether it refuses what does not fit; else it only tells."""
        return self.strict or self.at_limit is not AtLimit.WARN

    @property
    def end_action(self) -> EndAction | None:
        """What becomes of the instances in its scope when it is used up; None if they go on."""
        match self.at_limit:
            case AtLimit.STOP:
                return EndAction.STOP
            case AtLimit.DELETE:
                return EndAction.DELETE
            case _:
                return None

    @property
    def actor(self) -> str:
        """Who ends an instance because of it."""
        return f"budget:{self.id}"

    def period_at(self, now: datetime) -> Period:
        return period_at(self.period, now)

    def is_exhausted_at(self, now: datetime) -> bool:
        """Tell whether it is used up, and not of a period that has ended meanwhile."""
        return self.exhausted and self.period_at(now).begin <= self.period_start
