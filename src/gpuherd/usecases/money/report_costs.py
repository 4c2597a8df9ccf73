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
from functools import partial

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
from gpuherd.domain.money.period import Period, day_start
from gpuherd.domain.money.span_rules import UNCLEAR
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
    GroupBy,
    OpenSpan,
)
from gpuherd.ports.instance_port import Change, InstanceQuery
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud.read_catalogue import within_budget
from gpuherd.usecases.services import Services

ALL = "all"
BALANCE_TTL_S = 30.0
TOTALS_TTL_S = 30.0
VOLUMES_TTL_S = 15.0
RATIOS_TTL_S = 15.0
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


class MoneyCaches:
    """The replies about money that many readers share for some seconds. Each has one key, `ALL`."""

    def __init__(self, clock: Clock):
        self.balance: Cache[str, tuple[Decimal, datetime]] = Cache(clock, BALANCE_TTL_S, 1, "balance")
        self.volumes: Cache[str, tuple[StorageVolume, ...]] = Cache(clock, VOLUMES_TTL_S, 1, "volumes")
        self.cost_totals: Cache[str, CostReport] = Cache(clock, TOTALS_TTL_S, 1, "cost_totals")
        self.budget_ratios: Cache[str, Mapping[str, float]] = Cache(clock, RATIOS_TTL_S, 1, "budget_ratios")


@dataclass(frozen=True)
class PeriodCosts:
    """A report, and the bill beside it."""

    query: CostQuery
    report: CostReport
    # None where no day was compared, and for callers who may not see it.
    billed: BilledPeriod | None


async def report_costs(
    services: Services, period: Period, by: GroupBy, label: str, caller: Caller, now: datetime | None = None
) -> PeriodCosts:
    """Sum up a period: for an admin the whole account, for others what their key pays for.

    A period that ends at `now` goes on, and today is a day of it.
    """
    # guard: a key sees its own money
    query = CostQuery(period, by, label, owner=caller.owner)
    now = now or services.clock.now()
    report = await services.stores.costs.report(query, now)
    # guard: the bill is for admins
    billed = await _billed_days(services, period, now) if caller.sees_all else None
    return PeriodCosts(query, report, billed)


async def _billed_days(services: Services, period: Period, now: datetime) -> BilledPeriod | None:
    days = _whole_days(period, now)
    if days is None:
        return None
    billed: dict[date, int] = {}
    for row in await services.stores.costs.bill(*days):
        billed[row.day] = billed.get(row.day, 0) + row.amount_nusd
    if not billed:
        return None
    compared = Period(begin_of(min(billed)), end_of(max(billed)))
    report = await services.stores.costs.report(CostQuery(compared, GroupBy.DAY), now)
    metered = sum(it.amount for it in report.groups if it.value and date.fromisoformat(it.value) in billed)
    return BilledPeriod(max(billed), sum(billed.values()), metered)


def _whole_days(period: Period, now: datetime) -> tuple[date, date] | None:
    """Return the first and the last day that lie in a period as a whole; today counts as far as it goes."""
    first = day_start(period.begin)
    if first < period.begin:
        first += timedelta(days=1)
    end = period.end if period.end < now else day_start(now) + timedelta(days=1)
    last = day_start(end) - timedelta(days=1)
    return None if last < first else (first.astimezone(UTC).date(), last.astimezone(UTC).date())


async def read_balance(services: Services) -> AccountBalance:
    """Return what is left on the account. The provider is asked at most twice a minute."""
    available, read_at = await services.money_caches.balance.get_or_load(
        ALL, partial(_load_balance, services)
    )
    return AccountBalance(available, usd_of(await services.stores.costs.hourly_now()), read_at)


async def _load_balance(services: Services) -> tuple[Decimal, datetime]:
    return await services.billing.available_usd(), services.clock.now()


# A reader does not wait longer for a cloud that is away; what was metered is the next best answer.
VOLUMES_BUDGET_S = 3.0


async def list_leftovers(services: Services, caller: Caller) -> Sequence[Leftover]:
    """Return what still costs money, most expensive first: for an admin of the whole account, for others
    what their key pays for."""
    now = services.clock.now()
    # guard: a key sees its own leftovers
    spans = await services.stores.costs.open_spans(caller.owner)
    earlier = await services.stores.costs.earlier(caller.owner)
    live = [it.instance for it in await services.stores.instances.all_live(caller.owner)]
    stopped = {it.id: it.stopped_at for it in live if it.stopped_at is not None}
    found = [*_machines(spans, earlier, stopped, now), *_waiting(live)]
    if caller.sees_all:
        found += await _volumes_left(services, spans, now)
    return sorted(found, key=lambda it: (-it.hourly, it.kind, it.name, it.id))


async def _volumes_left(services: Services, spans: Sequence[OpenSpan], now: datetime) -> list[Leftover]:
    metered = {it.span.cloud_id: it for it in spans if it.span.kind is CostKind.VOLUME}
    asked = services.money_caches.volumes.get_or_load(ALL, services.billing.list_volumes)
    listed = await within_budget(VOLUMES_BUDGET_S, asked)
    if listed is None:
        # The volumes that are metered now most likely still exist.
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
    """Return True if a span of a machine is paid for, also while its price is unknown."""
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


async def read_cost_totals(services: Services) -> CostReport:
    """Return all costs by key, for the metrics. The store is asked at most twice a minute."""
    return await services.money_caches.cost_totals.get_or_load(ALL, partial(_load_totals, services))


async def _load_totals(services: Services) -> CostReport:
    now = services.clock.now()
    # By key: the store keeps sums of each day for that, and reads no single span.
    query = CostQuery(Period(BEGINNING, now + timedelta(days=1)), GroupBy.KEY)
    return await services.stores.costs.report(query, now)


# The tariff by which the instances were priced last.
DISK_TARIFF = "disk_tariff"


WRITE_TRIES_MAX = 5


# Changes that are written together share commits.
AT_ONCE = 100


ALIVE = tuple(it for it in Status if it is not Status.DELETED)


async def reprice_disks(services: Services) -> None:
    """Give live instances the disk price of a changed tariff. What has ended keeps its price.

    The store sums up what the instances of a key cost, so their rows must hold the price.
    """
    tariff = tariff_text(services.rules.disk)
    if await services.stores.flags.get(DISK_TARIFF) == tariff:
        return
    cursor: str | None = None
    while True:
        # Page by page: a start does not hold all instances in memory.
        page = await services.stores.instances.page(
            InstanceQuery(statuses=ALIVE, limit=AT_ONCE, cursor=cursor)
        )
        wrong = [it.id for it in page.instances if _may_be_wrong(services, it)]
        await asyncio.gather(*map(partial(_reprice, services), wrong))
        if (cursor := page.next_cursor) is None:
            break
    # Last: if the process dies earlier, the next start begins again.
    await services.stores.flags.put(DISK_TARIFF, tariff)


def _may_be_wrong(services: Services, it: Instance) -> bool:
    """Return True unless the disk of the instance was free and stays free."""
    return bool(it.disk_hourly_usd or services.rules.disk.hourly_usd(it.wish.disk_gb))


async def _reprice(services: Services, instance_id: str) -> None:
    for _ in range(WRITE_TRIES_MAX):
        it = await services.stores.instances.get(instance_id)
        repriced = replace(it, disk_hourly_usd=services.rules.disk.hourly_usd(it.wish.disk_gb))
        try:
            await services.stores.instances.update(Change(repriced))
        except StaleWrite:
            # A pass of another replica was faster.
            continue
        return


def tariff_text(disk: DiskTariff) -> str:
    """Return a tariff as the flag holds it."""
    return f"{disk.usd_per_gb_day.normalize():f} above {disk.free_gb} GB"
