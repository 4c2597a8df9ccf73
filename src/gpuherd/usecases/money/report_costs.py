"""Reports: costs, hourly rate, balance, leftovers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import (
    UTC,
    date,
    datetime,
    timedelta,
)
from decimal import Decimal

from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.offer import DiskTariff
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import (
    TERMINAL_STATUSES,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.money.balance import AccountBalance, Leftover, LeftoverKind
from gpuherd.domain.money.bill import (
    BilledPeriod,
    StorageVolume,
    begin_of,
    end_of,
)
from gpuherd.domain.money.meter import UNCLEAR
from gpuherd.domain.money.period import Period, day_start
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    nano_usd,
    usd_of,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.costs_port import (
    CostQuery,
    CostReport,
    Costs,
    GroupBy,
    OpenSpan,
    ProviderBilling,
)
from gpuherd.ports.instance_port import Change, InstanceQuery, Instances
from gpuherd.ports.replica_port import Flags
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud.read_catalogue import within_budget


@dataclass(frozen=True)
class PeriodCosts:
    """A report, and the bill beside it."""

    query: CostQuery
    report: CostReport
    # None where no day was compared, and for callers who may not see it.
    billed: BilledPeriod | None


@dataclass(frozen=True)
class ReportCosts:
    """Sums up a period for a caller: all of the account for an admin, else what the caller's key pays for."""

    costs: Costs
    clock: Clock

    async def __call__(
        self, period: Period, by: GroupBy, label: str, caller: Caller, now: datetime | None = None
    ) -> PeriodCosts:
        """Sum it up. A period that ends at `now` goes on, and today is a day of it."""
        # guard: a key sees its own money
        query = CostQuery(period, by, label, owner=caller.owner)
        now = now or self.clock.now()
        report = await self.costs.report(query, now)
        # guard: the bill is for admins
        billed = await self._billed(period, now) if caller.sees_all else None
        return PeriodCosts(query, report, billed)

    async def _billed(self, period: Period, now: datetime) -> BilledPeriod | None:
        days = _whole_days(period, now)
        if days is None:
            return None
        billed: dict[date, int] = {}
        for row in await self.costs.bill(*days):
            billed[row.day] = billed.get(row.day, 0) + row.amount_nusd
        if not billed:
            return None
        compared = Period(begin_of(min(billed)), end_of(max(billed)))
        report = await self.costs.report(CostQuery(compared, GroupBy.DAY), now)
        metered = sum(
            it.amount for it in report.groups if it.value and date.fromisoformat(it.value) in billed
        )
        return BilledPeriod(max(billed), sum(billed.values()), metered)


def _whole_days(period: Period, now: datetime) -> tuple[date, date] | None:
    """Return the first and the last day that lie in a period as a whole; today counts as far as it goes."""
    first = day_start(period.begin)
    if first < period.begin:
        first += timedelta(days=1)
    end = period.end if period.end < now else day_start(now) + timedelta(days=1)
    last = day_start(end) - timedelta(days=1)
    return None if last < first else (first.astimezone(UTC).date(), last.astimezone(UTC).date())


@dataclass(frozen=True)
class ReadHourlyNow:
    """For an admin all of the account, for others what their key pays for."""

    costs: Costs

    async def __call__(self, caller: Caller) -> Decimal:
        return usd_of(await self.costs.hourly_now(caller.owner))


BALANCE_TTL_S = 30.0
ALL = "all"


class ReadBalance:
    """Asks the provider, at most twice a minute."""

    def __init__(self, billing: ProviderBilling, costs: Costs, clock: Clock):
        self._billing = billing
        self._costs = costs
        self._clock = clock
        self._available: Cache[str, tuple[Decimal, datetime]] = Cache(clock, BALANCE_TTL_S, 1, "balance")

    @property
    def cache(self) -> Cache[str, tuple[Decimal, datetime]]:
        return self._available

    async def __call__(self) -> AccountBalance:
        available, read_at = await self._available.get_or_load(ALL, self._load)
        return AccountBalance(available, usd_of(await self._costs.hourly_now()), read_at)

    async def _load(self) -> tuple[Decimal, datetime]:
        return await self._billing.available_usd(), self._clock.now()


@dataclass(frozen=True)
class ListLabelKeys:
    """Those of ended instances are among them: what they have cost is in the report, too."""

    costs: Costs
    clock: Clock

    async def __call__(self, period: Period, caller: Caller) -> Sequence[str]:
        """Return the keys in use, those of the most instances first."""
        return await self.costs.label_keys(period, self.clock.now(), caller.owner)


VOLUMES_TTL_S = 15.0


# Whoever looks shall not wait for a cloud that is away; what was metered is the next best answer.
VOLUMES_BUDGET_S = 3.0


class ListLeftovers:
    """For an admin all of the account, for others what their key pays for."""

    def __init__(self, costs: Costs, instances: Instances, billing: ProviderBilling, clock: Clock):
        self._costs = costs
        self._instances = instances
        self._billing = billing
        self._clock = clock
        self._volumes: Cache[str, tuple[StorageVolume, ...]] = Cache(clock, VOLUMES_TTL_S, 1, "volumes")

    @property
    def cache(self) -> Cache[str, tuple[StorageVolume, ...]]:
        return self._volumes

    async def __call__(self, caller: Caller) -> Sequence[Leftover]:
        """Return them, the dearest first."""
        now = self._clock.now()
        # guard: a key sees its own leftovers
        spans = await self._costs.open_spans(caller.owner)
        earlier = await self._costs.earlier(caller.owner)
        live = [it.instance for it in await self._instances.all_live(caller.owner)]
        stopped = {it.id: it.stopped_at for it in live if it.stopped_at is not None}
        found = [*_machines(spans, earlier, stopped, now), *_waiting(live)]
        if caller.sees_all:
            found += await self._volumes_left(spans, now)
        return sorted(found, key=lambda it: (-it.hourly, it.kind, it.name, it.id))

    async def _volumes_left(self, spans: Sequence[OpenSpan], now: datetime) -> list[Leftover]:
        metered = {it.span.cloud_id: it for it in spans if it.span.kind is CostKind.VOLUME}
        asked = self._volumes.get_or_load(ALL, self._billing.list_volumes)
        listed = await within_budget(VOLUMES_BUDGET_S, asked)
        if listed is None:
            # What was metered until now most likely goes on.
            return [_metered_volume(it, now) for it in metered.values()]
        return [_volume(it, metered.get(it.volume_id), now) for it in listed]


def _machines(
    spans: Iterable[OpenSpan], earlier: Mapping[str, int], stopped: Mapping[str, datetime], now: datetime
) -> list[Leftover]:
    by_machine: dict[str, list[OpenSpan]] = {}
    for it in spans:
        if _costs(it.span):
            by_machine.setdefault(it.span.cloud_id, []).append(it)
    return [_machine(its, earlier, stopped, now) for its in by_machine.values()]


def _costs(span: CostSpan) -> bool:
    """Return True if a span of a machine is paid for, be it at a price that nobody knows yet."""
    return span.kind is not CostKind.VOLUME and span.began_by != UNCLEAR


def _machine(
    spans: Sequence[OpenSpan], earlier: Mapping[str, int], stopped: Mapping[str, datetime], now: datetime
) -> Leftover:
    subject = spans[0].subject
    since = max(it.span.began.mid for it in spans)
    runs = any(it.span.kind is CostKind.GPU for it in spans)
    kind = LeftoverKind.RUNNING if runs else LeftoverKind.STOPPED
    key = subject.instance_id or subject.cloud_id
    if not runs and (stopped_at := stopped.get(key)) is not None:
        # Its disk is older, but since then it costs nothing else.
        since = max(since, stopped_at)
    return Leftover(
        kind=kind if subject.instance_id else LeftoverKind.ORPHAN,
        id=key,
        name=subject.name,
        instance_id=subject.instance_id,
        cloud_id=spans[0].span.cloud_id,
        product_name=subject.product_name,
        region=subject.region,
        hourly=sum(it.span.rate.nano_usd for it in spans),
        so_far=earlier.get(key, 0) + sum(it.span.cost(now) for it in spans),
        since=since,
    )


def _waiting(live: Iterable[Instance]) -> list[Leftover]:
    return [
        Leftover(
            LeftoverKind.WAITING,
            it.id,
            it.name,
            it.id,
            product_name=it.wish.product_name,
            so_far=0,
            since=it.created_at,
        )
        for it in live
        if it.cloud_id is None and it.goal is Goal.RUNNING and it.status not in TERMINAL_STATUSES
    ]


def _volume(it: StorageVolume, metered: OpenSpan | None, now: datetime) -> Leftover:
    return Leftover(
        LeftoverKind.VOLUME,
        it.volume_id,
        it.name,
        region=it.region,
        hourly=nano_usd(it.hourly_usd),
        so_far=None if metered is None else metered.span.cost(now),
        since=None if metered is None else metered.span.began.mid,
    )


def _metered_volume(it: OpenSpan, now: datetime) -> Leftover:
    return Leftover(
        LeftoverKind.VOLUME,
        it.span.cloud_id,
        it.subject.name,
        region=it.subject.region,
        hourly=it.span.rate.nano_usd,
        so_far=it.span.cost(now),
        since=it.span.began.mid,
    )


TOTALS_TTL_S = 30.0
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


class ReadCostTotals:
    """Asks the store at most twice a minute, however many scrape."""

    def __init__(self, costs: Costs, clock: Clock):
        self._costs = costs
        self._clock = clock
        self._totals: Cache[str, CostReport] = Cache(clock, TOTALS_TTL_S, 1, "cost_totals")

    async def __call__(self) -> CostReport:
        return await self._totals.get_or_load(ALL, self._load)

    async def _load(self) -> CostReport:
        now = self._clock.now()
        # By something that sums by day know, or every span would have to be read.
        query = CostQuery(Period(BEGINNING, now + timedelta(days=1)), GroupBy.KEY)
        return await self._costs.report(query, now)


# The tariff by which the instances were priced last; none in a database of a version that knew no disks.
DISK_TARIFF = "disk_tariff"


WRITE_TRIES_MAX = 5


# Written together, they share commits.
AT_ONCE = 100


ALIVE = tuple(it for it in Status if it is not Status.DELETED)


@dataclass(frozen=True, kw_only=True)
class RepriceDisks:
    """What a key's instances cost is summed up by the store, so their rows must know the price."""

    instances: Instances
    flags: Flags
    disk: DiskTariff

    async def __call__(self) -> None:
        """Price what is alive anew if the tariff is another one; what has ended keeps its price."""
        tariff = tariff_text(self.disk)
        if await self.flags.get(DISK_TARIFF) == tariff:
            return
        cursor: str | None = None
        while True:
            # Page by page: a start has no use for all of them at once in memory.
            page = await self.instances.page(InstanceQuery(statuses=ALIVE, limit=AT_ONCE, cursor=cursor))
            wrong = [it.id for it in page.instances if self._may_be_wrong(it)]
            await asyncio.gather(*map(self._reprice, wrong))
            if (cursor := page.next_cursor) is None:
                break
        # Last: should we die before, the next start begins anew.
        await self.flags.put(DISK_TARIFF, tariff)

    def _may_be_wrong(self, it: Instance) -> bool:
        """Return True if its row may hold another price: all but those whose disk is free, then and now."""
        return bool(it.disk_hourly_usd or self.disk.hourly_usd(it.wish.disk_gb))

    async def _reprice(self, instance_id: str) -> None:
        for _ in range(WRITE_TRIES_MAX):
            it = await self.instances.get(instance_id)
            repriced = replace(it, disk_hourly_usd=self.disk.hourly_usd(it.wish.disk_gb))
            try:
                await self.instances.update(Change(repriced))
            except StaleWrite:
                # Another replica's pass was faster.
                continue
            return


def tariff_text(disk: DiskTariff) -> str:
    """Return a tariff as it is remembered."""
    return f"{disk.usd_per_gb_day.normalize():f} above {disk.free_gb} GB"
