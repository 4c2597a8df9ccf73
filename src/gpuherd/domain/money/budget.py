"""Budgets: scope, spending, judgement, and what happens at the limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from gpuherd.domain.errors import (
    BudgetExhausted,
    CloudUnavailable,
    FieldProblem,
    InvalidRequest,
)
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_state import can_be_stopped, may_end
from gpuherd.domain.instance.lease import EndAction
from gpuherd.domain.instance.quota import hourly_usd
from gpuherd.domain.instance.scheduled_end import End, EndCause
from gpuherd.domain.money.period import (
    BudgetPeriod,
    Period,
    period_at,
    resets_at,
)
from gpuherd.domain.money.usage_span import (
    HOUR_MICROS,
    MICROSECOND,
    doubt_nano,
    nano_usd,
    usd_of,
)

ID_PREFIX = "bud_"
WARN_PERCENT = (50, 80, 95)


# Enough for everyone, and few enough to check all of them at each create.
BUDGETS_MAX = 200


class ScopeKind(StrEnum):
    """What a budget applies to."""

    ALL = "all"
    KEY = "key"
    LABEL = "label"


class AtLimit(StrEnum):
    """What happens when a budget is used up. Each value includes those before it."""

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
    """Whose costs count: everyone's, those of one key, or those with one label."""

    kind: ScopeKind = ScopeKind.ALL
    # The id of the API key, or the name of the label.
    key: str = ""
    # The value of the label.
    value: str = ""

    def includes(self, owner: str, labels: Mapping[str, str]) -> bool:
        """Return True if an instance of this owner with these labels is in the scope."""
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
    """A budget and how far it is used up. Amounts are in nano-dollars."""

    id: str
    name: str
    scope: BudgetScope
    amount: int
    period: BudgetPeriod
    created_at: datetime
    # Start of the period to which `told` and `exhausted` belong.
    period_start: datetime
    warn_percent: tuple[int, ...] = WARN_PERCENT
    at_limit: AtLimit = AtLimit.BLOCK
    # Every instance in the scope needs a lease, and the whole lease must fit.
    strict: bool = False
    # The percentages that were announced in this period.
    told: tuple[int, ...] = ()
    # Used up. It stays so until the period ends or the amount is raised.
    exhausted: bool = False
    version: int = 0

    @property
    def is_binding(self) -> bool:
        """True if the budget rejects what does not fit; otherwise it only warns."""
        return self.strict or self.at_limit is not AtLimit.WARN

    @property
    def end_action(self) -> EndAction | None:
        """What happens to the instances in its scope when it is used up; None if they continue."""
        match self.at_limit:
            case AtLimit.STOP:
                return EndAction.STOP
            case AtLimit.DELETE:
                return EndAction.DELETE
            case _:
                return None

    @property
    def actor(self) -> str:
        """The actor that ends an instance for this budget."""
        return f"budget:{self.id}"

    def period_at(self, now: datetime) -> Period:
        return period_at(self.period, now)

    def is_exhausted_at(self, now: datetime) -> bool:
        """Return True if the budget is used up in the period of `now`."""
        return self.exhausted and self.period_at(now).begin <= self.period_start


# An instance without a lease is counted until the period ends. If the period never ends, as long as the
# longest lease.
ENDLESS = timedelta(days=90)


@dataclass(frozen=True)
class BudgetRules:
    """How far ahead budgets look."""

    # Running instances are counted this much longer, because a stop takes time.
    lead: timedelta = timedelta(seconds=120)
    # An accepted instance that costs nothing yet is counted as if it had run this long.
    horizon: timedelta = timedelta(seconds=900)
    # Only strict budgets judge. Used for a longer lease, which adds no new instance.
    only_strict: bool = False


@dataclass(frozen=True)
class Spending:
    """What a scope has spent in a period, and its cost per hour; in nano-dollars."""

    spent: int = 0
    hourly: int = 0
    # Start of the last complete list, up to which `spent` is exact. None before the first list.
    seen_at: datetime | None = None

    def ahead(self, time: timedelta) -> int:
        """Return what will be spent if everything continues for this time."""
        return self.spent + doubt_nano(self.hourly, time)


@dataclass(frozen=True)
class Promised:
    """Expected costs of instances in a scope that are in no ledger yet."""

    # Per hour, for what is accepted and not billed yet.
    unbilled_hourly: int = 0
    # The total until the end of each lease.
    leased: int = 0


@dataclass(frozen=True)
class Demand:
    """What an instance needs from the budgets: a new instance, a start, or a longer lease."""

    owner: str
    labels: Mapping[str, str]
    # Maximum cost per hour; None if unknown.
    hourly: int | None
    # Maximum length; None if it has no end.
    lease: timedelta | None


PRICE_UNKNOWN = (
    "what this costs is not known now, and a budget must hold it; try again, or say a maxHourlyPrice"
)


_PERIODS = {
    BudgetPeriod.DAY: "today",
    BudgetPeriod.WEEK: "this week",
    BudgetPeriod.MONTH: "this month",
    BudgetPeriod.TOTAL: "in total",
}


def check_lease(budget: Budget, demand: Demand) -> None:
    """Raise `InvalidRequest` (LEASE_REQUIRED) if the budget requires a lease and there is none."""
    # guard: a strict budget wants a lease
    if budget.strict and demand.lease is None:
        words = f"lease is required: budget {budget.name!r} is strict, so everything in it must have an end"
        raise InvalidRequest([FieldProblem("lease", "LEASE_REQUIRED", words)])


def judge(
    budget: Budget,
    spending: Spending,
    promised: Promised,
    demand: Demand,
    rules: BudgetRules,
    now: datetime,
) -> None:
    """Raise `BudgetExhausted` if the demand does not fit beside the spent and promised amounts."""
    if not budget.is_binding:
        return
    if demand.hourly is None:
        raise CloudUnavailable(PRICE_UNKNOWN)
    # guard: a strict budget counts whole leases
    time = demand.lease if budget.strict and demand.lease is not None else rules.horizon
    # guard: what is accepted and not billed yet counts in a budget
    reserved = promised.leased if budget.strict else doubt_nano(promised.unbilled_hourly, rules.horizon)
    wanted = doubt_nano(demand.hourly, time)
    left = max(0, budget.amount - spending.spent - reserved)
    # guard: a budget that is used up accepts nothing
    if budget.is_exhausted_at(now):
        left = 0
    elif wanted <= left:
        return
    raise BudgetExhausted(
        _words(budget, spending, reserved, wanted, now),
        details={
            "budget": _budget_details(budget, now),
            "spent": _usd(spending.spent),
            "reserved": _usd(reserved),
            "requested": _usd(wanted),
            "allowed": _usd(left),
            "allowedHourlyPrice": _usd(_hourly_for(left, time)),
        },
    )


def _words(budget: Budget, spending: Spending, reserved: int, wanted: int, now: datetime) -> str:
    what = f"budget {budget.name!r}"
    spent = f"${_cents(spending.spent)} of ${_cents(budget.amount)} {_PERIODS[budget.period]}"
    again = resets_at(budget.period, now)
    until = "" if again is None else f" or wait until {again:%Y-%m-%d}"
    if budget.is_exhausted_at(now):
        return f"{what} is used up: it has spent {spent}. Raise its amount{until}"
    promised = f" and promised ${_cents(reserved)}" if reserved else ""
    return (
        f"{what} has spent {spent}{promised}, so ${_cents(wanted)} more cannot be spent. "
        f"Ask for less, raise its amount{until}"
    )


def _budget_details(budget: Budget, now: datetime) -> dict[str, Any]:
    again = resets_at(budget.period, now)
    return {
        "id": budget.id,
        "name": budget.name,
        "period": budget.period.value,
        "amount": _usd(budget.amount),
        "resetsAt": None if again is None else f"{again:%Y-%m-%dT%H:%M:%S}Z",
    }


def _hourly_for(amount: int, time: timedelta) -> int:
    """Return the hourly cost at which an amount lasts for a time."""
    micros = time // MICROSECOND
    return amount * HOUR_MICROS // micros if micros > 0 else 0


def _usd(nano: int) -> str:
    return f"{usd_of(nano).normalize():f}"


def _cents(nano: int) -> str:
    return f"{usd_of(nano):.4f}".rstrip("0").rstrip(".") if nano % 10_000_000 else f"{usd_of(nano):.2f}"


@dataclass(frozen=True)
class Warned:
    """This percentage of the amount is spent."""

    percent: int


@dataclass(frozen=True)
class UsedUp:
    """The amount is spent, or will be before a stop could take effect."""


@dataclass(frozen=True)
class Renewed:
    """After an announcement, a new period began or the amount was raised."""

    reason: str


BudgetNews = Warned | UsedUp | Renewed
NEW_PERIOD = "a new period has begun"
AMOUNT_RAISED = "its amount was raised"


@dataclass(frozen=True)
class Review:
    """A budget in its new state, and the news about it."""

    budget: Budget
    news: tuple[BudgetNews, ...] = ()


def review(budget: Budget, spending: Spending, rules: BudgetRules, now: datetime) -> Review:
    """Return the news about a budget in the period of `now`. Each item is announced once per period."""
    news: list[BudgetNews] = []
    begin = budget.period_at(now).begin
    # If the clock was set back into an earlier period, no new period begins.
    if begin > budget.period_start:
        if budget.told or budget.exhausted:
            news.append(Renewed(NEW_PERIOD))
        budget = replace(budget, period_start=begin, told=(), exhausted=False)
    if budget.exhausted:
        # Nothing is left to warn about.
        return Review(budget, tuple(news))
    reached = [it for it in sorted(budget.warn_percent) if _is_reached(budget, spending, it)]
    if untold := [it for it in reached if it not in budget.told]:
        news += map(Warned, untold)
        budget = replace(budget, told=tuple(sorted({*budget.told, *untold})))
    if is_used_up(budget, spending, rules):
        budget = replace(budget, exhausted=True)
        news.append(UsedUp())
    return Review(budget, tuple(news))


def is_used_up(budget: Budget, spending: Spending, rules: BudgetRules) -> bool:
    """Return True if the amount is spent, or will be before a stop could take effect."""
    # guard: a budget ends things before its amount is passed
    return spending.ahead(rules.lead) >= budget.amount


def changed(before: Budget, after: Budget, spending: Spending, rules: BudgetRules, now: datetime) -> Review:
    """Return a changed budget. It keeps the announcements that are still true."""
    if (after.scope, after.period) != (before.scope, before.period):
        after = replace(after, period_start=after.period_at(now).begin, told=(), exhausted=False)
    # A percentage that is no longer reached can be announced again.
    told = tuple(it for it in after.told if it in after.warn_percent and _is_reached(after, spending, it))
    after = replace(after, told=told)
    raised = after.amount > before.amount
    # guard: nothing but a higher amount sets a budget free
    if after.exhausted and raised and not is_used_up(after, spending, rules):
        after = replace(after, exhausted=False)
    is_free_again = before.exhausted and not after.exhausted
    return Review(after, (Renewed(AMOUNT_RAISED),) if is_free_again and raised else ())


def state_of(budget: Budget, spending: Spending, rules: BudgetRules, now: datetime) -> BudgetState:
    """Return how far the budget is used up, whether or not that was announced."""
    if budget.is_exhausted_at(now) or is_used_up(budget, spending, rules):
        return BudgetState.EXHAUSTED
    warned = any(_is_reached(budget, spending, it) for it in budget.warn_percent)
    return BudgetState.WARNED if warned else BudgetState.OK


def _is_reached(budget: Budget, spending: Spending, percent: int) -> bool:
    return spending.spent * 100 >= budget.amount * percent


NOTHING = timedelta(0)


def demand_of(instance: Instance, now: datetime) -> Demand:
    """Return the maximum cost per hour of an instance, and for how long."""
    usd = hourly_usd(instance)
    return Demand(
        instance.owner, instance.labels, None if usd is None else nano_usd(usd), lease_left(instance, now)
    )


def lease_left(instance: Instance, now: datetime) -> timedelta | None:
    """Return how long the lease still allows costs; None if there is no lease."""
    ends_at, length_s = lease_columns(instance)
    if ends_at is not None:
        return max(NOTHING, ends_at - now)
    return None if length_s is None else timedelta(seconds=length_s)


def lease_columns(instance: Instance) -> tuple[datetime | None, int | None]:
    """Return when the lease ends, or its length if it has not begun; both None if there is none."""
    term, lease = instance.lease_term, instance.terms.lease
    if term is not None:
        return term.ends_at, None
    return (None, None) if lease is None else (lease.until, lease.seconds)


def budget_end(instance: Instance, budgets: Iterable[Budget], now: datetime) -> End | None:
    """Return how an instance ends because one of its budgets is used up; None if none ends it."""
    ends = [end for budget in budgets if (end := _end_by(instance, budget, now)) is not None]
    # Delete wins over stop, whichever budget comes first.
    return max(ends, key=lambda end: end.action is EndAction.DELETE, default=None)


def _end_by(instance: Instance, budget: Budget, now: datetime) -> End | None:
    action = budget.end_action
    if action is None or not budget.is_exhausted_at(now) or not may_end(instance):
        return None
    if not budget.scope.includes(instance.owner, instance.labels):
        return None
    if instance.status is Status.EXITED or instance.goal is Goal.STOPPED:
        # A stopped machine costs money only if its disk does, and only a delete ends that.
        if action is EndAction.STOP or (instance.status is Status.EXITED and not instance.disk_hourly_usd):
            return None
    elif not can_be_stopped(instance):
        action = EndAction.DELETE
    return End(EndCause.BUDGET, action, f"budget {budget.name!r} is used up", budget.actor)
