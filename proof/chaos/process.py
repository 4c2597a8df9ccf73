"""One life of the service: the wiring of `Herd` on the store in memory, with all its loops at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from gpuherd.domain.attempt import AttemptState
from gpuherd.domain.sighting import Patience
from gpuherd.jobs.outcome import Done
from gpuherd.ports.store import Change, Turn
from gpuherd.simulator.world import World
from tests.chaos.guard import Guard, Guarded
from tests.chaos.virtual_time import VirtualClock
from tests.chaos.watched_cloud import BreakingCloud
from tests.support.herd import Herd
from tests.support.memory.instances import MemoryInstances
from tests.support.memory.job_book import MemoryJobBook
from tests.support.memory.orphans import MemoryOrphans
from tests.support.memory.outbox import MemoryFlags, MemoryOutbox
from tests.support.memory.queue import MemoryQueue
from tests.support.memory.sightings import MemorySightings
from tests.support.memory.tables import QueueRow, Tables
from tests.support.memory.turns import MemoryTurns

T = TypeVar("T")

# Once at the start is what matters: within a life nothing loses a job.
SWEEP_S = 120.0
POLL_S = 60.0


@dataclass(frozen=True)
class Pace:
    """How fast everything goes. The proportions are the service's, only the looks are wider apart."""

    settle_s: float = 180.0
    look_s: float = 20.0
    idle_s: float = 120.0
    max_wait_s: float = 1200.0
    latency_s: float = 0.1
    # How often a call of the store lets others go first.
    delay_odds: float = 0.0
    slots: int = 4
    # So many create calls without an answer before an instance is given up.
    unknown_max: int = 3


class NotingTurns(MemoryTurns):
    """Tells which machine was bound, at the moment of the commit."""

    on_bound: Callable[[str], None]

    async def save(self, turn: Turn, change: Change) -> Turn:
        saved = await super().save(turn, change)
        attempt = change.attempt
        if attempt is not None and attempt.state is AttemptState.BOUND and attempt.cloud_id:
            self.on_bound(attempt.cloud_id)
        return saved


@dataclass(frozen=True)
class Surroundings:
    """What outlives the process: disk, cloud, users, and whoever watches."""

    tables: Tables
    world: World
    clock: VirtualClock
    cloud: Any
    receiver: Any
    on_bound: Callable[[str], None]
    on_look: Callable[[], None]


class Process(Herd):
    """A `Herd` that runs by itself until it is killed or stopped."""

    def __init__(self, around: Surroundings, guard: Guard, pace: Pace, seed: int):
        self.around, self.guard, self.pace = around, guard, pace
        self.tables = around.tables
        self.way = BreakingCloud(Guarded(around.cloud, "cloud", guard), around.clock)
        # In the order of their birth: a set would have the order of their addresses, another at each run.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._running = 0
        self._rung = asyncio.Event()
        self.died = asyncio.Event()
        guard.on_death = self.died.set
        super().__init__(
            Path(),
            around.world,
            around.clock,  # type: ignore[arg-type]
            seed=seed,
            cloud=self.way,  # type: ignore[arg-type]
            patience=Patience(timedelta(seconds=pace.settle_s)),
            max_wait=timedelta(seconds=pace.max_wait_s),
            unknown_max=pace.unknown_max,
        )
        # Whoever asks for a look gets one; how often is for the loop to say.
        self.observer.poll_interval = timedelta(0)

    @property
    def breaker_state(self) -> str:  # type: ignore[override]
        return self.way.breaker.state.value

    def _open(self, path: Path) -> None:
        tables, clock, changed = self.tables, self.clock, self.hub.changed
        turns = NotingTurns(tables, clock, self.ids, changed)
        turns.on_bound = self.around.on_bound
        turns.forget_leases()
        self.flags = self._guarded(MemoryFlags(tables), "flags")
        self.instances = self._guarded(MemoryInstances(tables, clock, changed), "instances")
        self.sightings = self._guarded(MemorySightings(tables, changed), "sightings")
        self.turns = self._guarded(turns, "turns")
        self.book = self._guarded(MemoryJobBook(tables, clock), "book")
        self.outbox = self._guarded(MemoryOutbox(tables), "outbox")
        self.orphans = self._guarded(MemoryOrphans(tables, clock, changed), "orphans")
        self.receiver = self._guarded(self.around.receiver, "receiver")
        self._queue = MemoryQueue(tables, clock)
        self.queue = self._guarded(self._queue, "queue")

    def _guarded(self, port: Any, name: str) -> Any:
        return Guarded(port, name, self.guard)

    def _recover(self) -> None:
        self._queue.recover()

    def start(self) -> None:
        """Begin to work."""
        self.tables.rings = self._rung.set
        self.spawn(self._work())
        self.spawn(self._observe())
        self.spawn(self._sweep_often())

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as part of this process: it ends when the process does."""
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def bury(self) -> None:
        """End everything that is still going on; its ports are poisoned, so nothing comes of it."""
        self.guard.dead = True
        self.tables.rings = lambda: None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    # Asked for, so that it is not reported as forgotten.
                    task.exception()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._rung.clear()
            while self._running < self.pace.slots and (row := self._queue.pick()):
                self._running += 1
                self.spawn(self._run_picked(row))
            following = self._queue.next_due() if self._running < self.pace.slots else None
            if following is None:
                await self._rung.wait()
                continue
            # Not for longer than a while: what is due by the wall clock may be due sooner than it seems.
            due_s = min((following - self.clock.now()).total_seconds(), POLL_S)
            alarm = loop.call_later(max(due_s, 0.0), self._rung.set)
            await self._rung.wait()
            alarm.cancel()

    async def _run_picked(self, row: QueueRow) -> None:
        try:
            outcome = await self.run_job(row.job_id)
            if isinstance(outcome, Done):
                await self.queue.done(row)
            else:
                await self.queue.put_back(row, outcome.delay)
        finally:
            self._running -= 1
            self._rung.set()

    async def _observe(self) -> None:
        while True:
            await self.observer.tick()
            await self.collector.tick()
            self.around.on_look()
            await self._nap()

    async def _nap(self) -> None:
        """Sleep until the next look is due: soon while anything moves, later while all is settled."""
        if self.moves():
            await self.clock.sleep(self.pace.look_s)
            return
        rest_s = self.pace.idle_s
        while rest_s > 0 and not self.moves():
            step_s = min(rest_s, self.pace.look_s)
            await self.clock.sleep(step_s)
            rest_s -= step_s

    async def _sweep_often(self) -> None:
        while True:
            await self.sweep()
            await self.clock.sleep(SWEEP_S)

    def moves(self) -> bool:
        """Tell whether some instance is not settled."""
        return any(not row.instance.settled for row in self.tables.instances.values())
