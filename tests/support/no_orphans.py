"""A ledger that stays empty, for stores that keep none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpuherd.domain.instance import Instance
from gpuherd.domain.machine import Machine
from gpuherd.domain.orphan import Orphan, Records
from gpuherd.ports.orphans import Entry, Line, Stray
from gpuherd.ports.store import Change


class NoOrphans:
    """The port `Orphans` where nothing ever strays."""

    async def strays(self) -> tuple[Stray, ...]:
        return ()

    async def line(self, cloud_id: str) -> Line:
        return Line(None, None)

    async def records(self, machine: Machine) -> Records:
        return Records()

    async def open(self) -> tuple[Orphan, ...]:
        return ()

    async def note(self, entries: Sequence[Entry]) -> None:
        raise NotImplementedError

    async def ask(self, orphan: Orphan) -> Orphan | None:
        raise NotImplementedError

    async def adopt(self, orphan: Orphan, change: Change, *, is_new: bool) -> Instance:
        raise NotImplementedError

    async def ordered_since(self, moment: datetime, by: str) -> int:
        return 0

    async def live_instances(self) -> int:
        return 0

    async def forget(self, before: datetime) -> int:
        return 0
