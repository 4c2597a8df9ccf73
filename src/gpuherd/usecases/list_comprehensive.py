"""List comprehensively: everything that we remember and everything that the cloud shows, merged.

The reply is kept, encoded, for 30 s. Changes of instances do not throw it away: with thousands of machines
something always changes, and each new reply costs a walk over all pages of the cloud. A sync does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.caller import HOUSE, Caller
from gpuherd.domain.errors import CloudError
from gpuherd.domain.machine import Listing
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.store import Instances, Live
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.describe import compact
from gpuherd.usecases.merge_machines import Entry, local_only, merge_machines
from gpuherd.usecases.observe_cloud import ObserveCloud

log = structlog.get_logger()

COMPREHENSIVE_TTL_S = 30.0
# Two for all who see everything, two for each other caller of the last seconds.
REPLIES_MAX = 64
# So many entries are encoded at a stretch (some milliseconds) before others get their turn.
STRETCH = 100

T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """How long the parts of one reply took."""

    cloud_s: float = 0.0
    local_s: float = 0.0
    merge_s: float = 0.0


@dataclass(frozen=True)
class _Reply:
    """An encoded reply that still lacks its last member, `performance`, and its closing brace."""

    head: bytes
    timing: Timing
    is_stale: bool


class ListComprehensive:
    """The use case, with its cache."""

    def __init__(
        self, instances: Instances, cloud: Cloud, observer: ObserveCloud, installation: str, clock: Clock
    ):
        self._instances = instances
        self._cloud = cloud
        self._observer = observer
        self._installation = installation
        self._clock = clock
        self._replies: Cache[str, _Reply] = Cache(clock, COMPREHENSIVE_TTL_S, REPLIES_MAX, "comprehensive")

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        return (self._replies,)

    def forget(self) -> None:
        """Make the next reply a new one."""
        self._replies.clear()

    async def __call__(
        self, *, include_novita_only: bool = True, sync_local_state: bool = False, caller: Caller = HOUSE
    ) -> bytes:
        """Return the list as JSON; a sync always asks the cloud, and lets our memory follow what it shows."""
        started_s = self._clock.monotonic()
        if sync_local_state:
            reply = await self._make(include_novita_only, caller.owner, sync=True)
            self.forget()
            hit = False
        else:
            reply, hit = await self._kept(include_novita_only, caller.owner)
        return reply.head + self._performance(started_s, reply.timing, hit=hit)

    async def _kept(self, include_novita_only: bool, owner: str | None) -> tuple[_Reply, bool]:
        # Nobody gets the reply that was made for somebody else.
        key = f"includeNovitaOnly={str(include_novita_only).lower()}"
        key += "" if owner is None else f" owner={owner}"
        made: list[_Reply] = []

        async def make() -> _Reply:
            made.append(await self._make(include_novita_only, owner, sync=False))
            return made[0]

        reply = await self._replies.get_or_load(key, make)
        if reply.is_stale:
            # Whoever asks next shall see that the cloud is back.
            self._replies.invalidate(key)
        return reply, not made

    async def _make(self, include_novita_only: bool, owner: str | None, *, sync: bool) -> _Reply:
        (local, local_s), (listing, cloud_s) = await asyncio.gather(
            self._timed(self._instances.all_live(owner)), self._timed(self._list(sync))
        )
        started_s = self._clock.monotonic()
        # A machine that none of the caller's instances has is somebody else's.
        others = include_novita_only and owner is None
        head = await self._encode(local, listing, others, synced=sync and listing is not None)
        timing = Timing(cloud_s, local_s, self._clock.monotonic() - started_s)
        return _Reply(head, timing, is_stale=listing is None)

    async def _list(self, sync: bool) -> Listing | None:
        """Return what the cloud shows, or None if it cannot be asked."""
        try:
            return (await self._observer.sync()).listing if sync else await self._cloud.list_machines()
        except CloudError as error:
            log.warning("comprehensive.cannot_list", code=error.code, reason=error.message)
            return None

    async def _encode(
        self, local: Sequence[Live], listing: Listing | None, include_novita_only: bool, *, synced: bool
    ) -> bytes:
        entries = local_only(local) if listing is None else merge_machines(local, listing, self._installation)
        sources: Counter[str] = Counter(local=0, novita=0, merged=0)
        parts: list[bytes] = []
        for entry in entries:
            if entry["source"] == "novita" and not include_novita_only:
                continue
            sources[entry["source"]] += 1
            parts.append(compact(entry))
            if len(parts) % STRETCH == 0:
                await self._clock.sleep(0)
        summary: Entry = {
            "total": len(parts),
            "sources": dict(sources),
            "stale": listing is None,
            "note": _note(listing),
            "synced": synced,
        }
        return b'{"instances":[' + b",".join(parts) + b"]," + compact(summary)[1:-1]

    def _performance(self, started_s: float, timing: Timing, *, hit: bool) -> bytes:
        spent = Timing() if hit else timing
        performance = {
            "totalRequestTimeMs": _ms(self._clock.monotonic() - started_s),
            "novitaApiTimeMs": _ms(spent.cloud_s),
            "localDataTimeMs": _ms(spent.local_s),
            "mergeProcessingTimeMs": _ms(spent.merge_s),
            "cacheHit": hit,
        }
        return b',"performance":' + compact(performance) + b"}"

    async def _timed(self, work: Awaitable[T]) -> tuple[T, float]:
        started_s = self._clock.monotonic()
        result = await work
        return result, self._clock.monotonic() - started_s


def _note(listing: Listing | None) -> str | None:
    if listing is None:
        return "the cloud cannot be asked now; this is what gpuherd remembers"
    return None if listing.complete else "the cloud's list was incomplete; some machines may be missing"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
