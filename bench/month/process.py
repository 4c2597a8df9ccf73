"""One life of the service in a month: all that it always does, but for the looks that can find nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from gpuherd.domain.instance.instance_state import due_at, use_look_at
from proof.chaos.ends.evidence import WatchedTables
from proof.chaos.process import ENDS_SWEEP_S, POLL_S, Process


class MonthProcess(Process):
    """A month has half a million moments to sweep at; at most of them nothing has changed since the last.

    Whoever looks finds something only if it was written since, if it is not settled, or if its time has come.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        self._known_changes = -1
        self._is_settled = False
        self._due_next: datetime | None = None
        self._resting: set[asyncio.Event] = set()
        super().__init__(*args, **kwargs)

    def stir(self) -> None:
        """Wake whoever rests: something was written, or the clock was set."""
        for it in self._resting:
            it.set()

    def moves(self) -> bool:
        """Tell what the service asks its store: whether some machine is on its way, or may be."""
        self._look_at_tables()
        if self._is_settled:
            return False
        moving = [row.instance for row in self._memory.instances.values() if not row.instance.settled]
        if any(it.cloud_id is not None for it in moving):
            return True
        ids = {it.id for it in moving}
        return any(it.is_open and it.instance_id in ids for it in self._memory.attempts.values())

    async def _sleep_until_next_look(self) -> None:
        end_s = self.clock.monotonic() + self.pace.idle_s
        while not self.moves() and (left_s := end_s - self.clock.monotonic()) > 0:
            await self._rest(left_s)
        if self.moves():
            await self.clock.sleep(self.pace.look_s)

    async def _repeat(self, look: Callable[[], Awaitable[object]]) -> None:
        while True:
            seen_changes = self._changes()
            await look()
            await self.clock.sleep(ENDS_SWEEP_S)
            while self._changes() == seen_changes and self._rests():
                left_s = POLL_S
                if self._due_next is not None:
                    left_s = min(left_s, (self._due_next - self.clock.now()).total_seconds())
                await self._rest(left_s)
                # As late as one that comes by every few seconds.
                await self.clock.sleep(ENDS_SWEEP_S - self.clock.monotonic() % ENDS_SWEEP_S)

    async def _rest(self, seconds: float) -> None:
        """Wait so long, or until something is written."""
        stirred = asyncio.Event()
        alarm = asyncio.get_running_loop().call_later(seconds, stirred.set)
        self._resting.add(stirred)
        try:
            await stirred.wait()
        finally:
            self._resting.discard(stirred)
            alarm.cancel()

    def _rests(self) -> bool:
        self._look_at_tables()
        return self._is_settled and (self._due_next is None or self.clock.now() < self._due_next)

    def _look_at_tables(self) -> None:
        if self._changes() == self._known_changes:
            return
        self._known_changes = self._changes()
        its = [row.instance for row in self._memory.instances.values()]
        self._is_settled = all(it.settled for it in its)
        self._due_next = None
        if self._is_settled:
            moments = [at for it in its for at in (due_at(it), use_look_at(it)) if at is not None]
            self._due_next = min(moments, default=None)

    def _changes(self) -> int:
        assert isinstance(self._memory, WatchedTables)
        return self._memory.changes
