"""One life of the service: the wiring of `Herd` on the store in memory, with all its loops at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from gpuherd.domain.cloud.account_identity import account_flag
from gpuherd.domain.cloud.observation import ListRecord, SettlingPolicy
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.job import Done
from gpuherd.ports.instance_port import Change, LeasedInstance
from gpuherd.simulator.world import World
from gpuherd.usecases.services import Stores
from proof.chaos.cloud.recording_cloud import CircuitBreakerCloud
from proof.chaos.crash_injection import CrashablePort, CrashInjector
from proof.chaos.virtual_time import VirtualClock
from tests.support.herd import Herd
from tests.support.memory.budgets import MemoryBudgets
from tests.support.memory.costs import MemoryCosts
from tests.support.memory.instances.capacity import MemoryCapacityMemory
from tests.support.memory.instances.instances import MemoryInstances
from tests.support.memory.instances.leases import MemoryInstanceLeases
from tests.support.memory.instances.observations import MemoryObservations
from tests.support.memory.jobs.jobs import MemoryJobs
from tests.support.memory.jobs.queue import MemoryQueue
from tests.support.memory.orphans import MemoryOrphans
from tests.support.memory.outbox import MemoryFlags, MemoryOutbox
from tests.support.memory.ports import memory_ports
from tests.support.memory.tables import JobRow, Tables

T = TypeVar("T")

# Once at the start is what matters: within a life nothing loses a job. Unless the clock is set: whoever waits
# by it would wait for that much longer, and only a sweep wakes them.
SWEEP_S = 120.0
POLL_S = 60.0
# As often as the service does.
ENDS_SWEEP_S = 5.0


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
    unknown_outcomes_max: int = 3
    # Whether ends, use and budgets are looked at as often as the service does.
    keeps_ends: bool = False
    # How often what has no job is looked for, and whether the clock was set.
    sweep_s: float = SWEEP_S


class RecordingLeases(MemoryInstanceLeases):
    """Tells what was written down, at the moment of the commit."""

    on_bound: Callable[[str], None]
    on_saved: Callable[[Change], None]

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        saved = await super().save(leased, change)
        attempt = change.attempt
        if attempt is not None and attempt.state is AttemptState.BOUND and attempt.cloud_id:
            self.on_bound(attempt.cloud_id)
        self.on_saved(change)
        return saved


class RecordingObservations(MemoryObservations):
    """Tells which list was written down."""

    on_list_kept: Callable[[ListRecord], None]

    async def record(self, record: ListRecord, *rest: Any) -> tuple[Instance, ...]:
        concerned = await super().record(record, *rest)
        self.on_list_kept(record)
        return concerned


@dataclass(frozen=True)
class ProcessEnvironment:
    """What outlives the process: disk, cloud, users, and whoever watches."""

    tables: Tables
    world: World
    clock: VirtualClock
    # With which key the process was started, and what it reaches with it.
    account: str
    cloud: Any
    receiver: Any
    on_bound: Callable[[str], None]
    on_saved: Callable[[Change], None]
    on_list_kept: Callable[[ListRecord], None]
    on_look: Callable[[], None]
    # Only where ends are watched.
    on_call: Callable[[str, str, float, BaseException | None], None] | None = None
    use_metrics: Any = None


class Process(Herd):
    """A `Herd` that runs by itself until it is killed or stopped."""

    def __init__(self, environment: ProcessEnvironment, crash_injector: CrashInjector, pace: Pace, seed: int):
        self.environment, self.crash_injector, self.pace = environment, crash_injector, pace
        self._memory = environment.tables
        self.breaker_cloud = CircuitBreakerCloud(
            CrashablePort(environment.cloud, "cloud", crash_injector), environment.clock, environment.on_call
        )
        # In the order of their birth: a set would have the order of their addresses, another at each run.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._running = 0
        self._woken = asyncio.Event()
        self.died = asyncio.Event()
        crash_injector.on_death = self.died.set
        super().__init__(
            Path(),
            environment.world,
            environment.clock,  # type: ignore[arg-type]
            seed=seed,
            cloud=self.breaker_cloud,
            settling=SettlingPolicy(timedelta(seconds=pace.settle_s)),
            max_wait=timedelta(seconds=pace.max_wait_s),
            unknown_outcomes_max=pace.unknown_outcomes_max,
        )
        # Whoever asks for a look gets one; how often is for the loop to say.
        self.observer.poll_interval = timedelta(0)

    @property
    def breaker_state(self) -> str:  # type: ignore[override]
        return self.breaker_cloud.breaker.state.value

    def _open(self, path: Path) -> Stores:
        tables, clock, changed = self._memory, self.clock, self.hub.changed
        instance_leases = RecordingLeases(tables, clock, self.ids, changed)
        instance_leases.on_bound, instance_leases.on_saved = (
            self.environment.on_bound,
            self.environment.on_saved,
        )
        instance_leases.release_all_leases()
        observations = RecordingObservations(tables, changed)
        observations.on_list_kept = self.environment.on_list_kept
        self.receiver = self._crashable(self.environment.receiver, "receiver")
        self._queue = MemoryQueue(tables, clock)
        flags = self._crashable(MemoryFlags(tables), "flags")
        account = self.environment.account
        budgets = MemoryBudgets(tables, clock)
        if self.pace.keeps_ends:
            budgets = self._crashable(budgets, "budgets")
            self.use_metrics = self._crashable(self.environment.use_metrics, "metrics")
        return memory_ports(
            installation=self._installation(flags),
            account=account,
            account_confirmed=account_flag(account) in tables.flags,
            hub=self.hub,
            history=self.history,
            flags=flags,
            instances=self._crashable(MemoryInstances(tables, clock, changed), "instances"),
            observations=self._crashable(observations, "sightings"),
            instance_leases=self._crashable(instance_leases, "turns"),
            jobs=self._crashable(MemoryJobs(tables, clock), "book"),
            outbox=self._crashable(MemoryOutbox(tables, clock), "outbox"),
            orphans=self._crashable(MemoryOrphans(tables, clock, changed), "orphans"),
            costs=MemoryCosts(tables),
            metered_costs=MemoryCosts(tables),
            capacity=self._crashable(MemoryCapacityMemory(tables), "capacity"),
            budgets=budgets,
            reviewed_budgets=budgets,
        )

    def _crashable(self, port: Any, name: str) -> Any:
        return CrashablePort(port, name, self.crash_injector)

    def _open_queue(self) -> Any:
        self._guarded_queue = self._crashable(self._queue, "queue")
        return self._guarded_queue

    def begin(self) -> None:
        """Begin to work."""
        self._memory.on_commit_wake = self._woken.set
        self.spawn(self._work())
        self.spawn(self._observe())
        if not self.pace.keeps_ends:
            self.spawn(self._sweep_often())
            return
        looks = (
            self.watch_clock,
            self.sweep,
            self.watch_use,
            self.review_budgets,
            self.watch_capacity,
        )
        for look in looks:
            self.spawn(self._repeat(look))

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as part of this process: it ends when the process does."""
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def terminate(self) -> None:
        """End everything that is still going on; its ports are poisoned, so nothing comes of it."""
        self.crash_injector.dead = True
        self._memory.on_commit_wake = lambda: None
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
            self._woken.clear()
            while self._running < self.pace.slots and (row := self._queue.pick()):
                self._running += 1
                self.spawn(self._run_picked(row))
            following = self._queue.next_due() if self._running < self.pace.slots else None
            if following is None:
                await self._woken.wait()
                continue
            # Not for longer than a while: what is due by the wall clock may be due sooner than it seems.
            due_s = min((following - self.clock.now()).total_seconds(), POLL_S)
            alarm = loop.call_later(max(due_s, 0.0), self._woken.set)
            await self._woken.wait()
            alarm.cancel()

    async def _run_picked(self, row: JobRow) -> None:
        try:
            outcome = await self.run_job(row.new.id)
            if isinstance(outcome, Done):
                await self._guarded_queue.done(row)
            else:
                await self._guarded_queue.put_back(row, outcome.delay)
        finally:
            self._running -= 1
            self._woken.set()

    async def _observe(self) -> None:
        while True:
            await self.observe()
            await self.collect()
            self.environment.on_look()
            await self._sleep_until_next_look()

    async def _sleep_until_next_look(self) -> None:
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
            await self.review_budgets()
            await self.watch_capacity()
            await self.clock.sleep(self.pace.sweep_s)

    async def _repeat(self, look: Callable[[], Awaitable[object]]) -> None:
        while True:
            await look()
            await self.clock.sleep(ENDS_SWEEP_S)

    def moves(self) -> bool:
        """Tell whether some instance is not settled."""
        return any(not row.instance.settled for row in self._memory.instances.values())
