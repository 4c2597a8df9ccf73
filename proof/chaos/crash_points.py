"""One life from the create to the delete, with the process killed at every single point of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Instance
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from proof.chaos.checks.checker import check
from proof.chaos.checks.evidence import Accepted, Violation
from proof.chaos.checks.money_checker import machine_lifetimes, owner_by_tag, wasted_s
from proof.chaos.crash_injection import CrashPolicy, crash_at, never_crash
from proof.chaos.harness import Harness
from proof.chaos.process import Pace, Process
from proof.chaos.runner import HOOK
from tests.support.herd import Herd

PACE = Pace(latency_s=0.1, max_wait_s=7200.0)
POLL_S = 10.0
PATIENCE_S = 7200.0

# Each strikes once, at the first call that it concerns, unless a span is needed to make it felt.
FAULTS: dict[str, tuple[Fault, ...]] = {
    "none": (),
    "create lost before it took effect": (Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1),),
    "create lost after it took effect": (Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1),),
    "create took effect late": (Fault(FaultKind.LATE_COMMIT, count=1, seconds=90),),
    "create answered 502 and took effect": (Fault(FaultKind.ERROR_AFTER_COMMIT, count=1, status=502),),
    "create answered nonsense": (Fault(FaultKind.GARBAGE, count=1, style="broken_json"),),
    "create hung": (Fault(FaultKind.HANG, count=1, seconds=60, endpoints=(ApiEndpoint.CREATE,)),),
    "create sold out": (Fault(FaultKind.SOLD_OUT, count=1),),
    "create throttled": (Fault(FaultKind.RATE_LIMIT, count=1, endpoints=(ApiEndpoint.CREATE,)),),
    "list shows it late": (Fault(FaultKind.LIST_LAG, count=1, seconds=90),),
    "lists are empty": (Fault(FaultKind.EMPTY_LIST, for_s=100),),
    "lists do not fit": (Fault(FaultKind.PARTIAL_LIST, for_s=100, style="short_page"),),
    "everything fails": (Fault(FaultKind.OUTAGE, after_s=1, for_s=100),),
    "delete lost": (Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(ApiEndpoint.DELETE,)),),
    "status flaps": (Fault(FaultKind.STATUS_FLAP, count=3),),
}


class Run:
    """One such life; `crashes_at` says at which point of which life the process is killed."""

    def __init__(self, crashes_at: tuple[int, ...] = (), faults: tuple[Fault, ...] = ()):
        def crash_policy(life: int) -> CrashPolicy:
            return crash_at(crashes_at[life - 1]) if life <= len(crashes_at) else never_crash

        self.harness = Harness(1, PACE, crash_policy, downtime_s=0.0)
        self._faults = faults
        # How many points each life of the process had.
        self.points: list[int] = []
        self.harness.run(self._play())
        self.evidence = self.harness.finish()

    def violations(self) -> list[Violation]:
        """Return every promise that was broken."""
        found = check(self.evidence)
        wasted = wasted_s(self.evidence, list(machine_lifetimes(self.evidence, owner_by_tag)))
        if wasted:
            found.append(Violation("waste", f"machines existed for {wasted:.0f} s that nobody had"))
        if alive := [it for it in self.evidence.world.alive() if it.id not in self.evidence.decoys]:
            found.append(Violation("I4 deleted", f"{len(alive)} machines are left"))
        return found

    async def _play(self) -> None:
        harness = self.harness
        harness.world.faults.add(*self._faults)
        supervisor = asyncio.ensure_future(self._supervise())
        request = _request()
        instance = await harness.ask(_launch(request))
        harness.evidence.accepted.append(Accepted("create", instance.id, harness.clock.elapsed_s, "key"))
        await self._until_usable(instance.id)
        await harness.ask(lambda process: process.delete(instance.id))
        harness.evidence.accepted.append(Accepted("delete", instance.id, harness.clock.elapsed_s))
        await harness.until_quiet(can_crash=True)
        supervisor.cancel()
        if harness.process is not None:
            self.points.append(harness.process.crash_injector.passed)

    async def _supervise(self) -> None:
        while True:
            process = self.harness.start_process()
            await process.died.wait()
            self.points.append(process.crash_injector.passed)
            await self.harness.wait_for_restart()

    async def _until_usable(self, instance_id: str) -> None:
        end_s = self.harness.clock.elapsed_s + PATIENCE_S
        while self.harness.clock.elapsed_s < end_s:
            it = self.harness.evidence.tables.instances[instance_id].instance
            if it.usable or it.status in TERMINAL_STATUSES:
                return
            await self.harness.clock.sleep(POLL_S)


def _launch(request: LaunchRequest) -> Callable[[Process], Awaitable[Instance]]:
    async def launch(process: Process) -> Instance:
        return (await process.launch_request(request)).instance

    return launch


def _request() -> LaunchRequest:
    claim = IdempotencyClaim("user", "key", "body")
    return LaunchRequest(name="job", wish=Herd.wish, webhook_url=HOOK, claim=claim)


def single_crashes(fault: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return every way to die once in the story with this fault."""
    (points,) = Run(faults=FAULTS[fault]).points
    return [(fault, (point,)) for point in range(1, points + 1)]


def double_crashes(first: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return every way to die again after dying at this point of the story without a fault."""
    points = Run((first,)).points
    return [("none", (first, second)) for second in range(1, points[1] + 1)] if len(points) > 1 else []


def failures(cases: list[tuple[str, tuple[int, ...]]]) -> list[str]:
    """Run these cases and tell which promises were broken where."""
    return [
        f"{fault}, killed at {crashes_at}: {violation}"
        for fault, crashes_at in cases
        for violation in Run(crashes_at, FAULTS[fault]).violations()
    ]
