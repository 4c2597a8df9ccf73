"""The way without intent and tag, through the same storms and the same checker, to see that both catch it.

A model of our own, not anybody's code: a create call is repeated like a read, up to four times, and the job
around it up to three times; what it returned is written down afterwards; a process that starts again takes up
every job that was under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.template import CreateCall
from gpuherd.domain.errors import CloudError, CloudRefused, CloudUnavailable, MachineGone, OutcomeUnknown
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.world import World
from proof.chaos.checks.evidence import Evidence, Violation
from proof.chaos.checks.money_checker import MachineLifetime, check_known, check_single, machine_lifetimes
from proof.chaos.cloud.recording_cloud import RecordingCloud
from proof.chaos.crash_injection import (
    CrashablePort,
    CrashInjector,
    CrashPolicy,
    ProcessKilled,
    crash_with_probability,
)
from proof.chaos.harness import CALM_LIMIT_S, CRASHES_MAX, small_catalogue
from proof.chaos.operation import UserOperation
from proof.chaos.schedules import Schedule
from proof.chaos.virtual_time import VirtualClock, VirtualLoop
from tests.support.herd import Herd
from tests.support.memory.tables import InstanceRow, Tables

CALL_TRIES = 4
JOB_TRIES = 3
RETRY_S = 2.0
QUIET_S = 900.0


@dataclass
class Wish:
    """One accepted request, as it lies on disk."""

    name: str
    goal: Goal = Goal.RUNNING
    cloud_id: str | None = None
    status: Status = Status.CREATING
    tries: int = 0


class Predecessor:
    """The service: one durable queue, worked off in order."""

    def __init__(self, cloud: RecordingCloud, clock: VirtualClock, disk: dict[str, Wish]):
        self._cloud = cloud
        self._clock = clock
        self._disk = disk

    async def run(self, crash_injector: CrashInjector) -> None:
        """Work until killed."""
        cloud = CrashablePort(self._cloud, "cloud", crash_injector)
        while True:
            for wish in list(self._disk.values()):
                if wish.goal is Goal.DELETED:
                    await self._delete(cloud, wish, crash_injector)
                elif wish.cloud_id is None and wish.status is Status.CREATING:
                    await self._create(cloud, wish, crash_injector)
            await self._clock.sleep(RETRY_S)

    async def _create(self, cloud: CrashablePort, wish: Wish, crash_injector: CrashInjector) -> None:
        try:
            offers = await cloud.list_offers(BillingMode.SPOT)
            template = await cloud.get_template(Herd.wish.template_id)
            offer = next(it for it in offers if it.available and it.product_name == Herd.wish.product_name)
            order = CreateCall(wish.name, "", offer, template, 1, 60, BillingMode.SPOT)
            cloud_id = await self._with_retries(lambda: cloud.create_machine(order))
        except (CloudError, StopIteration):
            wish.tries += 1
            if wish.tries >= JOB_TRIES:
                wish.status = Status.FAILED
            return
        # Here lies the machine that nobody knows of, if the process dies now.
        crash_injector.point("remember")
        wish.cloud_id, wish.status = cloud_id, Status.RUNNING

    async def _delete(self, cloud: CrashablePort, wish: Wish, crash_injector: CrashInjector) -> None:
        if wish.status is Status.DELETED:
            return
        if wish.cloud_id is not None:
            cloud_id = wish.cloud_id
            try:
                await self._with_retries(lambda: cloud.delete_machine(cloud_id))
            except MachineGone:
                pass
            except CloudError:
                return
        crash_injector.point("remember")
        wish.status = Status.DELETED

    async def _with_retries(self, call: Callable[[], Awaitable[str]]) -> str:
        for attempt in range(1, CALL_TRIES + 1):
            try:
                return await call()
            except CloudRefused:
                raise
            except (CloudUnavailable, OutcomeUnknown):
                if attempt == CALL_TRIES:
                    raise
                await self._clock.sleep(RETRY_S * attempt)
        raise AssertionError


def run_predecessor_schedule(schedule: Schedule) -> Evidence:
    """Play a schedule with the predecessor on the stage."""
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    world = World(clock, Random(f"world {schedule.seed}"), small_catalogue())
    evidence = Evidence(world, Tables(), schedule.pace.settle_s, origin_s=world.now())
    asyncio.set_event_loop(loop)
    try:
        loop.run(_PredecessorRun(schedule, evidence, clock).execute())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run(asyncio.sleep(0))
        loop.close()
        asyncio.set_event_loop(None)
    evidence.ended_s = clock.elapsed_s
    return evidence


class _PredecessorRun:
    def __init__(self, schedule: Schedule, evidence: Evidence, clock: VirtualClock):
        self._schedule = schedule
        self._evidence = evidence
        self._clock = clock
        self._disk: dict[str, Wish] = {}
        self._can_crash = True
        latency_s = schedule.pace.latency_s
        cloud = RecordingCloud(
            evidence.world, latency_s=latency_s, on_post=lambda _: None, on_listed=lambda _: None
        )
        self._service = Predecessor(cloud, clock, self._disk)

    async def execute(self) -> None:
        fault_plan, world = self._schedule.fault_plan, self._evidence.world
        world.faults.add(*fault_plan.faults)
        supervisor = asyncio.ensure_future(self._supervise())
        users = [asyncio.ensure_future(self._do(op)) for op in self._schedule.ops]
        await self._clock.sleep(fault_plan.fault_phase_s)
        self._can_crash = False
        world.faults.replace([])
        await asyncio.gather(*users)
        async with asyncio.timeout(CALM_LIMIT_S):
            while any(it.status is Status.CREATING or _is_leaving(it) for it in self._disk.values()):
                await self._clock.sleep(RETRY_S)
        # Whatever the cloud still does late, and then some.
        await self._clock.sleep(QUIET_S)
        world.tick()
        supervisor.cancel()
        self._write_down()

    async def _supervise(self) -> None:
        rng = Random(f"crashes {self._schedule.seed}")
        crash_policy: CrashPolicy = crash_with_probability(rng, self._schedule.fault_plan.crash_probability)
        while True:
            crash_injector = CrashInjector(
                lambda passed, label: (
                    self._can_crash and self._evidence.crashes < CRASHES_MAX and crash_policy(passed, label)
                ),
                self._clock,
                lambda _: None,
                rng,
                0.0,
            )
            try:
                await self._service.run(crash_injector)
            except ProcessKilled:
                self._evidence.crashes += 1
                await self._clock.sleep(self._schedule.downtime_s * rng.random() ** 2)

    async def _do(self, op: UserOperation) -> None:
        await self._clock.sleep(op.at_s)
        if op.kind == "create":
            name = f"wish-{len(self._disk)}"
            self._disk[name] = Wish(name)
        elif op.kind == "delete" and self._disk:
            self._disk[f"wish-{op.target % len(self._disk)}"].goal = Goal.DELETED

    def _write_down(self) -> None:
        """Put what the disk says into the shape that the checker reads."""
        for wish in self._disk.values():
            now = self._clock.now()
            instance = Instance(
                id=wish.name,
                name=wish.name,
                wish=Herd.wish,
                goal=wish.goal,
                status=wish.status,
                created_at=now,
                deadline=now + timedelta(hours=1),
                estimated_ready_at=now,
                cloud_id=wish.cloud_id,
            )
            self._evidence.tables.instances[wish.name] = InstanceRow(instance)


def _is_leaving(wish: Wish) -> bool:
    return wish.goal is Goal.DELETED and wish.status is not Status.DELETED


def owner_by_name(machine: SimulatedMachine) -> str | None:
    return machine.request.name


def check_predecessor(evidence: Evidence) -> list[Violation]:
    """Hold it to the two promises that are about money: nothing unknown, nothing twice."""
    lifetimes = list(machine_lifetimes(evidence, owner_by_name))
    return [
        *check_known(evidence, lifetimes),
        *check_single(evidence, lifetimes, abandoned_may_overlap=False),
    ]


def unknown_s(evidence: Evidence, lifetimes: list[MachineLifetime]) -> float:
    """Return the seconds that machines existed whose id was never written down, until the end of the play."""
    known = {row.instance.cloud_id for row in evidence.tables.instances.values()}
    return sum(
        lifetime.end_s - lifetime.begin_s for lifetime in lifetimes if lifetime.machine.id not in known
    )
