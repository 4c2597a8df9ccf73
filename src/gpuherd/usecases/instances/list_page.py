"""List: one page of instances as JSON; what has not changed since it was last shown is not encoded again."""

from __future__ import annotations

import math

from gpuherd.clock import Clock
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.instances import InstancePage, InstanceQuery, Instances
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.compact_json import compact
from gpuherd.usecases.describe.instance import describe

CACHED_ENTRIES_MAX = 1000


class ListInstances:
    """The use case, with the entries that it showed last."""

    def __init__(self, instances: Instances, clock: Clock):
        self._instances = instances
        # By id: which version, and its bytes. A version never changes, so nothing here is ever out of date.
        self._encoded: Cache[str, tuple[int, bytes]] = Cache(clock, math.inf, CACHED_ENTRIES_MAX, "entries")

    async def page(self, query: InstanceQuery) -> InstancePage:
        """Return the page, for those who show it in another form."""
        return await self._instances.page(query)

    async def __call__(self, query: InstanceQuery) -> bytes:
        """Return the page as JSON."""
        page = await self._instances.page(query)
        entries = b",".join([self._entry(it) for it in page.instances])
        rest = compact({"total": page.total, "nextCursor": page.next_cursor})
        return b'{"instances":[' + entries + b"]," + rest[1:]

    def _entry(self, it: Instance) -> bytes:
        kept = self._encoded.peek(it.id)
        if kept is None or kept[0] != it.version:
            kept = (it.version, compact(describe(it)))
            self._encoded.put(it.id, kept)
        return kept[1]
