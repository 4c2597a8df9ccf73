"""List: one page of instances as JSON; what has not changed since it was last shown is not encoded again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from gpuherd.domain.instance import Instance
from gpuherd.ports.store import InstanceQuery, Instances
from gpuherd.usecases.describe import compact, describe

KEPT_MAX = 1000


@dataclass(frozen=True)
class ListInstances:
    """The use case, with the entries that it showed last."""

    instances: Instances
    # By id: which version, and its bytes. A version never changes, so nothing here is ever out of date.
    _kept: OrderedDict[str, tuple[int, bytes]] = field(default_factory=OrderedDict, init=False)

    async def __call__(self, query: InstanceQuery) -> bytes:
        """Return the page."""
        page = await self.instances.page(query)
        entries = b",".join([self._entry(it) for it in page.instances])
        rest = compact({"total": page.total, "nextCursor": page.next_cursor})
        return b'{"instances":[' + entries + b"]," + rest[1:]

    def _entry(self, it: Instance) -> bytes:
        kept = self._kept.get(it.id)
        if kept is None or kept[0] != it.version:
            kept = self._kept[it.id] = (it.version, compact(describe(it)))
        self._kept.move_to_end(it.id)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return kept[1]
