"""List: one page of instances as JSON; what has not changed since it was last shown is not encoded again."""

from __future__ import annotations

import math

from gpuherd.clock import Clock
from gpuherd.contract.instance import InstanceRow
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.settled_cost import SettledCost
from gpuherd.ports.instances import InstancePage, InstanceQuery, Instances
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.compact_json import compact
from gpuherd.usecases.describe.instance import describe, describe_cost

CACHED_ENTRIES_MAX = 1000

Encoded = Cache[str, tuple[int, SettledCost, bytes]]


class ListInstances:
    """The use case, with the entries that it showed last."""

    def __init__(self, instances: Instances, clock: Clock):
        self._instances = instances
        self._clock = clock
        # By id: which version, what it had cost, and its bytes. A version never changes, unless the
        # store loses it; so nothing here is ever out of date.
        self._encoded = self._new_cache()

    def _new_cache(self) -> Encoded:
        return Cache(self._clock, math.inf, CACHED_ENTRIES_MAX, "entries")

    def forget(self) -> None:
        """Drop what is kept: versions may be given out a second time."""
        self._encoded = self._new_cache()

    async def page(self, query: InstanceQuery) -> InstancePage:
        """Return the page, for those who show it in another form."""
        return await self._instances.page(query)

    async def __call__(self, query: InstanceQuery) -> bytes:
        """Return the page as JSON."""
        # What is read now does not belong into what comes after a `forget`.
        encoded = self._encoded
        page = await self._instances.page(query)
        entries = b",".join([_entry(it, encoded) for it in page.instances])
        rest = compact({"total": page.total, "nextCursor": page.next_cursor})
        return b'{"instances":[' + entries + b"]," + rest[1:]


def _entry(it: Instance, encoded: Encoded) -> bytes:
    kept = encoded.peek(it.id)
    # The meter settles a cost without a new version.
    # guard: what was settled without a version is shown in lists
    if kept is None or kept[0] != it.version or kept[1] != it.cost:
        kept = (
            it.version,
            it.cost,
            compact(InstanceRow.extending(describe(it), cost=describe_cost(it.cost))),
        )
        encoded.put(it.id, kept)
    return kept[2]
