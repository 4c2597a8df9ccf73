"""List everything that still costs money: machines, stopped disks, volumes, what nobody has, what waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.costs.amount import nano_usd
from gpuherd.domain.costs.bill import StorageVolume
from gpuherd.domain.costs.leftover import Leftover, LeftoverKind
from gpuherd.domain.costs.meter.edges import UNCLEAR
from gpuherd.domain.costs.span import CostKind, CostSpan
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Goal, Instance
from gpuherd.ports.costs import Costs, OpenSpan, ProviderBilling
from gpuherd.ports.instances import Instances
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.cloud.catalogue import within_budget

VOLUMES_TTL_S = 15.0
# Whoever looks shall not wait for a cloud that is away; what was metered is the next best answer.
VOLUMES_BUDGET_S = 3.0
ALL = "all"


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
    """Tell whether a span of a machine is paid for, be it at a price that nobody knows yet."""
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
