"""The ledger of costs in the store: spans, whose they are, and the provider's own bill beside them; and the
budgets, which are summed up from it.

All amounts are nano-dollars, all rates nano-dollars an hour. Who writes spans is `Observations.record`.
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
    """By what a report is divided; `LABEL` needs the key of the label."""

    INSTANCE = "instance"
    DAY = "day"
    PRODUCT = "product"
    REGION = "region"
    KEY = "key"
    LINEAGE = "lineage"
    LABEL = "label"


# A report is read at once, not page by page.
GROUPS_MAX = 1000


# More keys than this nobody chooses from.
LABEL_KEYS_MAX = 100


@dataclass(frozen=True)
class CostQuery:
    """What a report is about; with `owner` only what that key pays for."""

    period: Period
    by: GroupBy
    label: str = ""
    owner: str | None = None
    # Of instances and lineages there may be very many: so many, the dearest, are told apart.
    groups_max: int = GROUPS_MAX


@dataclass(frozen=True)
class CostGroup:
    """What belongs to one value; that is None for what has none, and for machines that are nobody's."""

    value: str | None
    amount: int
    doubt: int
    # What its spans that go on cost an hour, whatever the period; for that alone it is in none but one that
    # holds now.
    hourly_now: int
    instances: int
    # Of the instance, where it is instances that are told apart.
    name: str = ""


@dataclass(frozen=True)
class Waste:
    """What was paid for nothing, by its cause. The causes may overlap."""

    # Machines that are nobody's.
    unbound: int = 0
    # Instances that have ended, and were never usable.
    failed_boots: int = 0
    # From the moment the end was wanted to the moment it came.
    after_end: int = 0
    # An old machine beside the one that has taken its place.
    overlap: int = 0


@dataclass(frozen=True)
class CostReport:
    """What a period has cost so far."""

    amount: int
    doubt: int
    hourly_now: int
    by_kind: Mapping[CostKind, int]
    waste: Waste
    # The dearest first; days in their order.
    groups: tuple[CostGroup, ...] = field(default=())
    # How many more there are, of the cheapest; they are in the sums.
    groups_left_out: int = 0


@dataclass(frozen=True)
class OpenSpan:
    """A span that goes on, and whose it is."""

    span: CostSpan
    subject: CostSubject


@dataclass(frozen=True)
class MeteredMachine:
    """What one machine has cost in a period, of one kind."""

    cloud_id: str
    instance_id: str | None
    kind: CostKind
    amount: int
    doubt: int
    # The lowest and the highest of its spans.
    rate_min: int
    rate_max: int


@dataclass(frozen=True)
class BilledDay:
    """What the provider charges for one machine on one day, of one category."""

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
    """What everything costs."""

    async def report(self, query: CostQuery, now: datetime) -> CostReport:
        """Sum up a period; what goes on is counted up to `now`."""
        ...

    async def label_keys(self, period: Period, now: datetime, owner: str | None = None) -> Sequence[str]:
        """Return the keys of the labels of instances that cost anything in a period (of an owner).

        Those of the most instances come first; at most `LABEL_KEYS_MAX`."""
        ...

    async def open_spans(
        self, owner: str | None = None, *, kind: CostKind | None = None
    ) -> Sequence[OpenSpan]:
        """Return every span that goes on, with whose it is (of an owner; of a kind), in order of machine and
        kind."""
        ...

    async def hourly_now(self, owner: str | None = None) -> int:
        """Return what all that goes on (of an owner) costs an hour: one sum, however many spans there are."""
        ...

    async def earlier(self, owner: str | None = None) -> Mapping[str, int]:
        """Return what has ended of those who have a span that goes on, by instance, else by machine."""
        ...

    async def spans_of(self, instance_id: str) -> Sequence[CostSpan]:
        """Return all spans of an instance, in the order in which they were opened."""
        ...

    async def metered(self, period: Period, now: datetime) -> Sequence[MeteredMachine]:
        """Return what each machine has cost in a period, each kind apart, to compare it with the bill."""
        ...

    async def write(
        self, spans: Sequence[CostSpan], subjects: Mapping[str, CostSubject], now: datetime
    ) -> None:
        """Write spans that were opened, changed or ended, in this order, with whose each is."""
        ...

    async def save_bill(self, day: date, rows: Sequence[BilledDay]) -> None:
        """Write down what the provider charges for a day, in place of what was written down before."""
        ...

    async def bill(self, first: date, last: date) -> Sequence[BilledDay]:
        """Return the provider's rows of these days, both included, by day, machine and category."""
        ...


class ProviderBilling(Protocol):
    """The provider's own numbers. Every call only reads, and may raise `CloudError`."""

    async def charges(self, begin: datetime, end: datetime) -> tuple[ProviderCharge, ...]:
        """Return what is charged for the hours that begin in [begin, end), as far as it is written yet."""
        ...

    async def available_usd(self) -> Decimal:
        """Return what is left to be spent; it may be less than nothing."""
        ...

    async def list_volumes(self) -> tuple[StorageVolume, ...]:
        """Return all network volumes of the account."""
        ...


class Budgets(Protocol):
    """The budgets of the installation. They are few."""

    async def add(self, budget: Budget, audit_record: AuditRecord) -> None:
        """Remember a new one, and who made it; `Conflict` (BUDGET_EXISTS) if its name is taken,
        `Conflict` (TOO_MANY_BUDGETS) if there are as many as there may be."""
        ...

    async def list_all(self) -> tuple[Budget, ...]:
        """Return all, by name."""
        ...

    async def get(self, id_or_name: str) -> Budget:
        """Return one; `NotFound` (BUDGET_NOT_FOUND) if there is none."""
        ...

    async def save(
        self, budget: Budget, events: Sequence[AccountEvent] = (), audit_record: AuditRecord | None = None
    ) -> Budget:
        """Write one over the version it was made from, with what is told of it, in one transaction.

        Return it as it is now. `StaleWrite` if it has changed since it was read, or is gone, or another
        event was numbered at the same moment; `Conflict` (BUDGET_EXISTS) if its new name is taken.
        """
        ...

    async def remove(self, budget_id: str, audit_record: AuditRecord) -> None:
        """Forget one; `NotFound` (BUDGET_NOT_FOUND) if there is none."""
        ...

    async def spending(self, budget: Budget, now: datetime) -> Spending:
        """Return what its scope has cost in the period of `now`, up to `now`, and costs an hour."""
        ...

    async def judge(self, demand: Demand, rules: BudgetRules, now: datetime) -> None:
        """Raise what an instance with this demand would hear now; it is written nowhere."""
        ...

    async def to_end(self, budget: Budget, limit: int) -> Sequence[Instance]:
        """Return instances in its scope that still have to be ended by it, in whichever order.

        What has vanished, or is being given back, ends by nothing and takes nobody's place.
        """
        ...
