"""An engine at work in a test: its turns are written by the test, and every run is counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from gpuherd.adapters.queue.engine import Engine
from gpuherd.domain.job import Done, Outcome
from tests.adapters.queue.queue_backends import SqlBackend
from tests.support.fake_clock import FakeClock

# Only a guard against a test that would hang; nothing is measured against it.
PATIENCE_S = 20


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that another thread or server does, and that no event announces."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.005)


class EngineHarness:
    """Runs an engine, and what a test says in `turn`."""

    def __init__(self, backend: SqlBackend, turn: Callable[[str], Awaitable[Outcome]], **options: Any):
        self.backend = backend
        self.clock = getattr(backend, "clock", None) or FakeClock()
        self.runs: Counter[str] = Counter()
        self.at_once = 0
        self.at_once_most = 0
        self.errors: list[tuple[str, BaseException]] = []
        self._turn = turn
        self._changed = asyncio.Condition()
        settings: dict[str, Any] = {
            "kinds": ("turn", "delivery"),
            "concurrency": 4,
            "on_error": lambda job_id, error: self.errors.append((job_id, error)),
            **options,
        }
        repository = settings.pop("repository", backend.repository)
        self.engine = Engine(repository, run=self._run, clock=self.clock, name="test", **settings)

    async def ran(self, job_id: str, times: int = 1) -> None:
        """Wait until a job is in its n-th turn."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: self.runs[job_id] >= times)

    async def ran_all(self, count: int) -> None:
        """Wait until so many turns have begun."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: self.runs.total() >= count)

    async def empty(self) -> None:
        """Wait until the queue has no row."""

        async def no_rows() -> bool:
            return not await self.backend.rows()

        await until(no_rows)

    async def waiting(self, *job_ids: str) -> None:
        """Wait until these jobs are back in the queue."""

        async def queued() -> bool:
            rows = await self.backend.rows()
            return {row.payload.decode() for row in rows if row.status == "queued"} >= set(job_ids)

        await until(queued)

    async def _run(self, job_id: str) -> Outcome:
        self.runs[job_id] += 1
        self.at_once += 1
        self.at_once_most = max(self.at_once, self.at_once_most)
        try:
            await self.backend.clear_woken(job_id)
            async with self._changed:
                self._changed.notify_all()
            return await self._turn(job_id)
        finally:
            self.at_once -= 1


@asynccontextmanager
async def running_engine(
    backend: SqlBackend, turn: Callable[[str], Awaitable[Outcome]], **options: Any
) -> AsyncIterator[EngineHarness]:
    """Start an engine, and stop it at the end without waiting for turns that hang."""
    workshop = EngineHarness(backend, turn, **options)
    await workshop.engine.start()
    async with asyncio.timeout(2 * PATIENCE_S):
        try:
            yield workshop
        finally:
            await workshop.engine.stop(limit_s=0)


async def done(job_id: str) -> Outcome:
    """A turn that has nothing to do."""
    return Done()
