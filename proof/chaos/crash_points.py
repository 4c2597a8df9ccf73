"""One life from the create to the delete, with the process killed at every single point of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gpuherd.domain.instance import ENDED, Instance
from gpuherd.ports.store import Claim
from gpuherd.simulator.calls import Endpoint
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.usecases.launch_instance import LaunchRequest
from tests.chaos.checker import check
from tests.chaos.evidence import Accepted, Violation
from tests.chaos.guard import Fate, dies_at, immortal
from tests.chaos.money import lives_of, owner_by_tag, wasted_s
from tests.chaos.play import HOOK
from tests.chaos.process import Pace, Process
from tests.chaos.stage import Stage
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
    "create hung": (Fault(FaultKind.HANG, count=1, seconds=60, endpoints=(Endpoint.CREATE,)),),
    "create sold out": (Fault(FaultKind.SOLD_OUT, count=1),),
    "create throttled": (Fault(FaultKind.RATE_LIMIT, count=1, endpoints=(Endpoint.CREATE,)),),
    "list shows it late": (Fault(FaultKind.LIST_LAG, count=1, seconds=90),),
    "lists are empty": (Fault(FaultKind.EMPTY_LIST, for_s=100),),
    "lists do not fit": (Fault(FaultKind.PARTIAL_LIST, for_s=100, style="short_page"),),
    "everything fails": (Fault(FaultKind.OUTAGE, after_s=1, for_s=100),),
    "delete lost": (Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(Endpoint.DELETE,)),),
    "status flaps": (Fault(FaultKind.STATUS_FLAP, count=3),),
}


class Run:
    """One such life; `deaths` says at which point of which life the process is killed."""

    def __init__(self, deaths: tuple[int, ...] = (), faults: tuple[Fault, ...] = ()):
        def fate(life: int) -> Fate:
            return dies_at(deaths[life - 1]) if life <= len(deaths) else immortal

        self.stage = Stage(1, PACE, fate, downtime_s=0.0)
        self._faults = faults
        # How many points each life of the process had.
        self.points: list[int] = []
        self.stage.run(self._play())
        self.evidence = self.stage.finish()

    def violations(self) -> list[Violation]:
        """Return every promise that was broken."""
        found = check(self.evidence)
        wasted = wasted_s(self.evidence, list(lives_of(self.evidence, owner_by_tag)))
        if wasted:
            found.append(Violation("waste", f"machines existed for {wasted:.0f} s that nobody had"))
        if alive := [it for it in self.evidence.world.alive() if it.id not in self.evidence.decoys]:
            found.append(Violation("I4 deleted", f"{len(alive)} machines are left"))
        return found

    async def _play(self) -> None:
        stage = self.stage
        stage.world.faults.add(*self._faults)
        supervisor = asyncio.ensure_future(self._supervise())
        request = _request()
        instance = await stage.ask(_launch(request))
        stage.evidence.accepted.append(Accepted("create", instance.id, stage.clock.elapsed_s, "key"))
        await self._until_usable(instance.id)
        await stage.ask(lambda process: process.change_goal.delete(instance.id))
        stage.evidence.accepted.append(Accepted("delete", instance.id, stage.clock.elapsed_s))
        await stage.until_quiet(mortal=True)
        supervisor.cancel()
        if stage.process is not None:
            self.points.append(stage.process.guard.passed)

    async def _supervise(self) -> None:
        while True:
            process = self.stage.raise_process()
            await process.died.wait()
            self.points.append(process.guard.passed)
            await self.stage.mourn()

    async def _until_usable(self, instance_id: str) -> None:
        end_s = self.stage.clock.elapsed_s + PATIENCE_S
        while self.stage.clock.elapsed_s < end_s:
            it = self.stage.evidence.tables.instances[instance_id].instance
            if it.usable or it.status in ENDED:
                return
            await self.stage.clock.sleep(POLL_S)


def _launch(request: LaunchRequest) -> Callable[[Process], Awaitable[Instance]]:
    async def launch(process: Process) -> Instance:
        return (await process.launch_instance(request)).instance

    return launch


def _request() -> LaunchRequest:
    claim = Claim("user", "key", "body")
    return LaunchRequest(name="job", wish=Herd.wish, webhook_url=HOOK, claim=claim)


def single_deaths(fault: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return every way to die once in the story with this fault."""
    (points,) = Run(faults=FAULTS[fault]).points
    return [(fault, (point,)) for point in range(1, points + 1)]


def double_deaths(first: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return every way to die again after dying at this point of the story without a fault."""
    points = Run((first,)).points
    return [("none", (first, second)) for second in range(1, points[1] + 1)] if len(points) > 1 else []


def failures(cases: list[tuple[str, tuple[int, ...]]]) -> list[str]:
    """Run these cases and tell which promises were broken where."""
    return [
        f"{fault}, killed at {deaths}: {violation}"
        for fault, deaths in cases
        for violation in Run(deaths, FAULTS[fault]).violations()
    ]
