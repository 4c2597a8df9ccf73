"""The port `CapacityMemory`, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpuherd.domain.cloud.capacity_line import OfferRest, is_in_line
from gpuherd.domain.cloud.offer import OfferKey
from gpuherd.domain.instance.instance import Instance
from tests.support.memory.tables import Tables


class MemoryCapacityMemory:
    """The port `CapacityMemory`."""

    def __init__(self, tables: Tables):
        self._tables = tables

    async def load(self) -> tuple[Sequence[Instance], Sequence[OfferRest]]:
        line = [row.instance for row in self._tables.instances.values() if is_in_line(row.instance)]
        line.sort(key=lambda it: (it.line_since, it.id))
        return line, list(self._tables.offer_rests.values())

    async def remember(self, rest: OfferRest) -> None:
        with self._tables as tables:
            tables.put(tables.offer_rests, rest.key, rest)

    async def forget(self, key: OfferKey) -> None:
        with self._tables as tables:
            if key in tables.offer_rests:
                tables.drop(tables.offer_rests, key)

    async def note_reclaim(self, key: OfferKey, at: datetime) -> None:
        with self._tables as tables:
            tables.put(tables.reclaimed_places, key, at)

    async def reclaimed_since(self, moment: datetime) -> Mapping[OfferKey, datetime]:
        with self._tables as tables:
            for key in [key for key, at in tables.reclaimed_places.items() if at < moment]:
                tables.drop(tables.reclaimed_places, key)
        return dict(self._tables.reclaimed_places)

    async def prune(self, before: datetime) -> int:
        with self._tables as tables:
            old = [key for key, it in tables.offer_rests.items() if it.refused_at < before]
            for key in old:
                tables.drop(tables.offer_rests, key)
        return len(old)
