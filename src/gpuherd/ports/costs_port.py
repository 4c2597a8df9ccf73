"""The ledger of costs in the store: spans and their owners, the provider's bill, and budgets.

All amounts are nano-dollars, all rates nano-dollars an hour. `Observations.record` writes the spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.money.bill import ProviderCharge, StorageVolume
from gpuherd.domain.money.budget import (
    Budget,
    BudgetRules,
    Demand,
    Spending,
)
from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import CostKind, CostSpan, CostSubject
from gpuherd.ports.event_port import AccountEvent


class GroupBy(StrEnum):
    """How a report is grouped; `LABEL` needs the key of the label."""

    INSTANCE = "instance"
    DAY = "day"
    PRODUCT = "product"
    REGION = "region"
    KEY = "key"
    LINEAGE = "lineage"
    LABEL = "label"


# A report has no pages.
GROUPS_MAX = 1000


# No user chooses from more keys than this.
LABEL_KEYS_MAX = 100


@dataclass(frozen=True)
class CostQuery:
    """What a report is about. With `owner`: only what that key pays for."""

    period: Period
    by: GroupBy
    label: str = ""
    owner: str | None = None
    # There may be very many instances and lineages. Only this many, the most expensive, are listed.
    groups_max: int = GROUPS_MAX


@dataclass(frozen=True)
class CostGroup:
    """The costs of one value; the value is None for costs without one and for unbound machines."""

    value: str | None
    amount: int
    doubt: int
    # The hourly cost of its open spans, whatever the period. A group with nothing else appears only if the
    # period includes now.
    hourly_now: int
    instances: int
    # Name of the instance, if the report is grouped by instance.
    name: str = ""


@dataclass(frozen=True)
class Waste:
    """Costs without use, by cause. Causes may overlap."""

    # Machines without an instance.
    unbound: int = 0
    # Instances that ended without ever being usable.
    failed_boots: int = 0
    # From the request of the end to the end.
    after_end: int = 0
    # An original beside the replacement that has taken over.
    overlap: int = 0


@dataclass(frozen=True)
class CostReport:
    """The costs of a period so far."""

    amount: int
    doubt: int
    hourly_now: int
    by_kind: Mapping[CostKind, int]
    waste: Waste
    # Most expensive first; days in their order.
    groups: tuple[CostGroup, ...] = field(default=())
    # How many more there are, the cheapest. The sums include them.
    groups_left_out: int = 0


@dataclass(frozen=True)
class OpenSpan:
    """An open span and its subject."""

    span: CostSpan
    subject: CostSubject


@dataclass(frozen=True)
class MeteredMachine:
    """The cost of one machine in a period, of one kind."""

    cloud_id: str
    instance_id: str | None
    kind: CostKind
    amount: int
    doubt: int
    # The lowest and the highest rate of its spans.
    rate_min: int
    rate_max: int


@dataclass(frozen=True)
class BilledDay:
    """The provider's charge for one machine on one day, in one category."""

    day: date
    cloud_id: str
    category: str
    # Card-seconds, or gigabyte-seconds.
    quantity: int
    unit_nusd: int
    amount_nusd: int
    voucher_nusd: int
    fetched_at: datetime


class Costs(Protocol):
    """The ledger of costs."""

    async def report(self, query: CostQuery, now: datetime) -> CostReport:
        """Sum up a period. Open spans count up to `now`."""
        ...

    async def label_keys(self, period: Period, now: datetime, owner: str | None = None) -> Sequence[str]:
        """Return the label keys of instances with costs in a period (of an owner).

        Keys of the most instances come first; at most `LABEL_KEYS_MAX`.
        """
        ...

    async def open_spans(
        self, owner: str | None = None, *, kind: CostKind | None = None
    ) -> Sequence[OpenSpan]:
        """Return every open span with its subject (of an owner; of a kind), in order of machine and kind."""
        ...

    async def hourly_now(self, owner: str | None = None) -> int:
        """Return the hourly cost of all open spans (of an owner). This is one sum, however many there are."""
        ...

    async def earlier(self, owner: str | None = None) -> Mapping[str, int]:
        """Return the ended costs of all that have an open span, by instance, otherwise by machine."""
        ...

    async def spans_of(self, instance_id: str) -> Sequence[CostSpan]:
        """Return all spans of an instance, in the order of opening."""
        ...

    async def metered(self, period: Period, now: datetime) -> Sequence[MeteredMachine]:
        """Return the cost of each machine in a period, per kind, to compare it with the bill."""
        ...

    async def write(
        self, spans: Sequence[CostSpan], subjects: Mapping[str, CostSubject], now: datetime
    ) -> None:
        """Write opened, changed and ended spans, in this order, with their subjects."""
        ...

    async def save_bill(self, day: date, rows: Sequence[BilledDay]) -> None:
        """Store the provider's charges of a day, replacing earlier ones."""
        ...

    async def bill(self, first: date, last: date) -> Sequence[BilledDay]:
        """Return the provider's rows of these days, both included, by day, machine and category."""
        ...


class ProviderBilling(Protocol):
    """The provider's own numbers. Every call only reads, and may raise `CloudError`."""

    async def charges(self, begin: datetime, end: datetime) -> tuple[ProviderCharge, ...]:
        """Return the charges of the hours that begin in [begin, end), as far as they exist yet."""
        ...

    async def available_usd(self) -> Decimal:
        """Return the available balance; it may be negative."""
        ...

    async def list_volumes(self) -> tuple[StorageVolume, ...]:
        """Return all network volumes of the account."""
        ...


class Budgets(Protocol):
    """The budgets of the installation. There are few."""

    async def add(self, budget: Budget, audit_record: AuditRecord) -> None:
        """Store a new budget, and who made it.

        `Conflict` (BUDGET_EXISTS) if its name is taken, `Conflict` (TOO_MANY_BUDGETS) if there are too many.
        """
        ...

    async def list_all(self) -> tuple[Budget, ...]:
        """Return all budgets, by name."""
        ...

    async def get(self, id_or_name: str) -> Budget:
        """Return one budget; `NotFound` (BUDGET_NOT_FOUND) if there is none."""
        ...

    async def save(
        self, budget: Budget, events: Sequence[AccountEvent] = (), audit_record: AuditRecord | None = None
    ) -> Budget:
        """Write a budget over the version from which it was made, with its events, in one transaction.

        Return it as it is now. `StaleWrite` if it changed or was removed since it was read, or if another
        event got a number at the same moment. `Conflict` (BUDGET_EXISTS) if its new name is taken.
        """
        ...

    async def remove(self, budget_id: str, audit_record: AuditRecord) -> None:
        """Delete a budget; `NotFound` (BUDGET_NOT_FOUND) if there is none."""
        ...

    async def spending(self, budget: Budget, now: datetime) -> Spending:
        """Return what its scope has spent in the period of `now`, and its hourly cost."""
        ...

    async def judge(self, demand: Demand, rules: BudgetRules, now: datetime) -> None:
        """Raise the error that an instance with this demand would get now. Nothing is written."""
        ...

    async def to_end(self, budget: Budget, limit: int) -> Sequence[Instance]:
        """Return instances in its scope that it must still end, in any order.

        Instances that vanished or are being removed are left out.
        """
        ...
