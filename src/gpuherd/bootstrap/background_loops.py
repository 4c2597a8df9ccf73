"""Loops: small tasks that repeat one action until they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import end_task

log = structlog.get_logger()


@dataclass
class Loop:
    """Does `work` now and then every `interval_s`; what goes wrong once is logged, and tried again."""

    name: str
    interval_s: float
    work: Callable[[], Awaitable[object]]
    clock: Clock
    # So long after the start it is done first: what nobody waits for leaves the start to what somebody does.
    first_after_s: float = 0.0
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"loop-{self.name}")

    async def stop(self) -> None:
        """End the loop. Stopping twice, or before a start, is fine."""
        await end_task(self._task)
        self._task = None

    async def _run(self) -> None:
        if self.first_after_s:
            await self.clock.sleep(self.first_after_s)
        while True:
            try:
                await self.work()
            except Exception:
                log.exception("loop.iteration_failed", loop=self.name)
            await self.clock.sleep(self.interval_s)
