"""The comprehensive list: our instances and the cloud's machines merged, encoded and cached for 30 s.

The machines come from the observer's last list, or from one list for all callers if that one is too old.
A sync clears the cache, changes of instances do not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from pydantic_core import to_json

from gpuherd.contract.instance_models import (
    ListedInstance,
    ListedMachine,
    ListPerformance,
    ListSummary,
)
from gpuherd.domain.api_key import SYSTEM_CALLER, Caller
from gpuherd.domain.cloud.list_consistency import (
    Consistency,
    ConsistencyVerdict,
    cloud_status,
    judge_with_machine,
    judge_without_machine,
)
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.errors import CloudError
from gpuherd.domain.instance.rent_attempt import machine_tag, owner_tag, plain_name
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import LiveInstance
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.instance_view import describe, describe_ports

Entry = ListedInstance | ListedMachine
OURS = "ours"
CLOUD_NOT_ASKED = ConsistencyVerdict(Consistency.LOCAL_NEWER, "the cloud could not be asked")


def merge_machines(local: Sequence[LiveInstance], listing: Listing, installation: str) -> Iterator[Entry]:
    """Yield every instance with its machine, then the machines that no instance has; linear in both."""
    shown = [machine for machine in listing.machines if machine.phase is not Phase.ABSENT]
    by_id = {machine.cloud_id: machine for machine in shown}
    by_tag = {tag: machine for machine in shown if (tag := machine_tag(machine))}
    for live in local:
        machine = _machine_of(live, by_id, by_tag)
        if machine is None:
            awaited = live.open_tag is not None
            verdict = judge_without_machine(live.instance, awaited=awaited, list_complete=listing.complete)
            yield _local_entry(live, verdict)
        else:
            by_id.pop(machine.cloud_id, None)
            yield _merged_entry(live, machine)
    for machine in by_id.values():
        yield _unclaimed_entry(machine, installation)


def local_only(local: Sequence[LiveInstance]) -> Iterator[Entry]:
    """Yield every instance as we remember it, for want of a list."""
    for live in local:
        yield _local_entry(live, CLOUD_NOT_ASKED)


def _machine_of(
    live: LiveInstance, by_id: Mapping[str, Machine], by_tag: Mapping[str, Machine]
) -> Machine | None:
    if live.instance.cloud_id is not None:
        return by_id.get(live.instance.cloud_id)
    # Its create call has no outcome yet, but the machine gives itself away.
    return by_tag.get(live.open_tag) if live.open_tag else None


def _local_entry(live: LiveInstance, verdict: ConsistencyVerdict) -> ListedInstance:
    it = live.instance
    return ListedInstance.extending(
        describe(it),
        source="local",
        ownership=OURS,
        local_status=it.status.value,
        **_verdict(verdict),
        cloud_status=None,
        cloud_error=None,
        spot_status=None,
        spot_reclaim_time=None,
    )


def _merged_entry(live: LiveInstance, machine: Machine) -> ListedInstance:
    it = live.instance
    return ListedInstance.extending(
        describe(it),
        status=(cloud_status(machine, it.status) or it.status).value,
        cloud_instance_id=machine.cloud_id,
        novita_instance_id=machine.cloud_id,
        source="merged",
        ownership=OURS,
        local_status=it.status.value,
        **_verdict(judge_with_machine(it, machine)),
        cloud_status=machine.raw_status,
        cloud_error=machine.error or None,
        spot_status=machine.spot_status or None,
        spot_reclaim_time=machine.spot_reclaim_at,
    )


def _unclaimed_entry(machine: Machine, installation: str) -> ListedMachine:
    """Return a machine that belongs to no instance: somebody else's, or one of ours that nobody wants."""
    tag = owner_tag(machine)
    is_ours = tag is not None and tag.installation == installation
    if is_ours:
        verdict = ConsistencyVerdict(
            Consistency.CONFLICTED, "it carries our tag, but no instance of ours has it"
        )
    else:
        verdict = ConsistencyVerdict(Consistency.NOVITA_NEWER, "only the cloud knows of it")
    status = cloud_status(machine)
    return ListedMachine(
        id=None,
        instance_id=None,
        name=plain_name(machine.name),
        status=status.value if status else None,
        status_reason=machine.error,
        goal=None,
        usable=None,
        cloud_instance_id=machine.cloud_id,
        novita_instance_id=machine.cloud_id,
        product_id=machine.product_id or None,
        product_name=machine.product_name or None,
        region=machine.region or None,
        gpu_num=machine.gpu_num,
        rootfs_size=machine.disk_gb,
        billing_mode=machine.billing_mode or None,
        hourly_price=None,
        template_id=None,
        image_url=machine.image_url or None,
        port_mappings=describe_ports(machine.ports),
        labels={},
        created_at=machine.created_at,
        source="novita",
        ownership=OURS if is_ours else "foreign",
        local_status=None,
        **_verdict(verdict),
        cloud_status=machine.raw_status,
        cloud_error=machine.error or None,
        spot_status=machine.spot_status or None,
        spot_reclaim_time=machine.spot_reclaim_at,
    )


def _verdict(verdict: ConsistencyVerdict) -> dict[str, str]:
    return {"consistency": verdict.consistency.value, "consistency_reason": verdict.reason}


log = structlog.get_logger()
COMPREHENSIVE_TTL_S = 30.0
# Two for callers that see everything, two for each other caller of the last seconds.
REPLIES_MAX = 64
# Entries encoded in one go (some milliseconds) before other tasks get their turn.
ENCODE_BATCH = 100
T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """How long the parts of one reply took."""

    cloud_s: float = 0.0
    local_s: float = 0.0
    merge_s: float = 0.0


@dataclass(frozen=True)
class _CachedReply:
    """An encoded reply that still lacks its last member, `performance`, and its closing brace."""

    head: bytes
    timing: Timing
    is_stale: bool
    # Of what the cloud is said to show.
    listed_at_s: float


class ComprehensiveCache:
    """Keeps replies, and the list of the cloud where the observer has none that is young enough."""

    def __init__(self, clock: Clock):
        self.replies: Cache[str, _CachedReply] = Cache(
            clock, COMPREHENSIVE_TTL_S, REPLIES_MAX, "comprehensive"
        )
        # One for all callers.
        self.listings: Cache[None, Listing] = Cache(clock, COMPREHENSIVE_TTL_S, 1, "listing")

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        return (self.replies, self.listings)

    def forget(self) -> None:
        """Make the next reply a new one."""
        self.replies.clear()
        self.listings.clear()


async def list_comprehensive(
    services: Services,
    *,
    include_novita_only: bool = True,
    sync_local_state: bool = False,
    caller: Caller = SYSTEM_CALLER,
) -> bytes:
    """Return the list as JSON. A sync lists the cloud, and instances follow what the list shows."""
    clock = services.clock
    started_s = clock.monotonic()
    if sync_local_state:
        reply = await _make(services, include_novita_only, caller.owner, sync=True)
        services.comprehensive_cache.forget()
        is_hit = False
    else:
        reply, is_hit = await _cached(services, include_novita_only, caller.owner)
    spent = Timing() if is_hit else reply.timing
    performance = ListPerformance(
        total_request_time_ms=_ms(clock.monotonic() - started_s),
        novita_api_time_ms=_ms(spent.cloud_s),
        local_data_time_ms=_ms(spent.local_s),
        merge_processing_time_ms=_ms(spent.merge_s),
        cache_hit=is_hit,
    )
    return reply.head + b',"performance":' + to_json(performance) + b"}"


async def _cached(
    services: Services, include_novita_only: bool, owner: str | None
) -> tuple[_CachedReply, bool]:
    # A caller that sees only its own instances has its own reply.
    key = f"includeNovitaOnly={str(include_novita_only).lower()}"
    key += "" if owner is None else f" owner={owner}"
    made: list[_CachedReply] = []

    async def make() -> _CachedReply:
        made.append(await _make(services, include_novita_only, owner, sync=False))
        return made[0]

    replies = services.comprehensive_cache.replies
    kept = replies.get_stale(key)
    if kept is not None and services.clock.boottime() - kept[0].listed_at_s >= COMPREHENSIVE_TTL_S:
        replies.invalidate(key)
    reply = await replies.get_or_load(key, make)
    if reply.is_stale:
        # The next caller shall see that the cloud is back.
        replies.invalidate(key)
    return reply, not made


async def _make(
    services: Services, include_novita_only: bool, owner: str | None, *, sync: bool
) -> _CachedReply:
    clock = services.clock
    (local, local_s), ((listing, listed_at_s), cloud_s) = await asyncio.gather(
        _timed(clock, services.stores.instances.all_live(owner)), _timed(clock, _list(services, sync))
    )
    started_s = clock.monotonic()
    if listing is None:
        entries = local_only(local)
    else:
        entries = merge_machines(local, listing, services.stores.installation)
    if not include_novita_only or owner is not None:
        # Only callers that see everything see machines that no instance has.
        entries = (entry for entry in entries if entry.source != "novita")
    encoded, sources = await _encode(clock, entries)
    summary = ListSummary(
        total=len(encoded),
        sources=sources,
        stale=listing is None,
        note=_note(listing),
        synced=sync and listing is not None,
    )
    head = b'{"instances":[' + b",".join(encoded) + b"]," + to_json(summary)[1:-1]
    timing = Timing(cloud_s, local_s, clock.monotonic() - started_s)
    return _CachedReply(head, timing, is_stale=listing is None, listed_at_s=listed_at_s)


async def _timed(clock: Clock, work: Awaitable[T]) -> tuple[T, float]:
    started_s = clock.monotonic()
    result = await work
    return result, clock.monotonic() - started_s


async def _list(services: Services, sync: bool) -> tuple[Listing | None, float]:
    """Return what the cloud shows, or None if it cannot be asked, and the time of the list."""
    clock, listings = services.clock, services.comprehensive_cache.listings
    cloud = services.browse_cloud or services.cloud
    try:
        if sync:
            return (await services.observer.sync()).listing, clock.boottime()
        now_s = clock.boottime()
        if (recent := services.observer.recent_listing(COMPREHENSIVE_TTL_S)) is not None:
            listing, age_s = recent
            return listing, now_s - age_s
        if (kept := listings.get_stale(None)) is not None and kept[1] < COMPREHENSIVE_TTL_S:
            return kept[0], now_s - kept[1]
        listing = await listings.get_or_load(None, cloud.list_machines)
        return listing, clock.boottime()
    except CloudError as error:
        log.warning("comprehensive.cannot_list", code=error.code, reason=error.message)
        return None, clock.boottime()


async def _encode(clock: Clock, entries: Iterator[Entry]) -> tuple[list[bytes], dict[str, int]]:
    sources: Counter[str] = Counter(local=0, novita=0, merged=0)
    encoded: list[bytes] = []
    for entry in entries:
        sources[entry.source] += 1
        encoded.append(to_json(entry))
        if len(encoded) % ENCODE_BATCH == 0:
            await clock.sleep(0)
    return encoded, dict(sources)


def _note(listing: Listing | None) -> str | None:
    if listing is None:
        return "the cloud cannot be asked now; this is what gpuherd remembers"
    return None if listing.complete else "the cloud's list was incomplete; some machines may be missing"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
