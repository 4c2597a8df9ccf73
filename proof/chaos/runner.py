"""Plays one schedule to its end and returns the evidence."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random

import structlog

from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.health import HealthCheck
from gpuherd.domain.instance import Instance, OnFailure
from gpuherd.domain.tag import MARK
from gpuherd.ports.store import Claim
from gpuherd.simulator.create_request import CreateRequest, read_create_request
from gpuherd.simulator.errors import SimulatedError
from gpuherd.usecases.launch_instance import LaunchRequest
from tests.chaos.elder import place_elder
from tests.chaos.evidence import Accepted, Evidence, Window
from tests.chaos.guard import dies_with_odds
from tests.chaos.process import Process
from tests.chaos.schedules import Op, Schedule
from tests.chaos.stage import Stage
from tests.support.herd import Herd

HOOK = "https://example.com/hook"
# A user who is told that it is too early tries again a few times.
NOT_YET = frozenset({"INSTANCE_NOT_STARTABLE", "INSTANCE_NOT_STOPPABLE", "CIRCUIT_BREAKER_OPEN"})
TRIES = 8
TRY_AGAIN_S = 15.0

_DECOY: CreateRequest = read_create_request(
    {
        "name": "decoy",
        "productId": "3090.16c92g",
        "gpuNum": 1,
        "rootfsSize": 60,
        "billingMode": "onDemand",
        "imageUrl": "docker.io/library/ubuntu:22.04",
    }
)


def silence(*, for_good: bool = False) -> None:
    """Keep the service's log out of the way; what it says is in the evidence.

    Unless it is `for_good`, other tests of the same process can hear it again.
    """
    if not structlog.get_config()["cache_logger_on_first_use"]:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(50), cache_logger_on_first_use=for_good
        )


def play(schedule: Schedule) -> tuple[Evidence, Stage]:
    """Play a schedule."""
    chance = Random(f"crashes {schedule.seed}")
    odds = schedule.weather.crash_odds
    stage = Stage(
        schedule.seed,
        schedule.pace,
        lambda _life: dies_with_odds(chance, odds),
        downtime_s=schedule.downtime_s,
    )
    stage.run(_Player(schedule, stage).play())
    return stage.finish(), stage


class _Player:
    """The users and the weather of one schedule."""

    def __init__(self, schedule: Schedule, stage: Stage):
        self.schedule = schedule
        self.stage = stage
        self.evidence = stage.evidence
        self.made: list[str] = []
        self.requests: list[LaunchRequest] = []

    async def play(self) -> None:
        stage, weather = self.stage, self.schedule.weather
        stage.mortal = False
        supervisor = asyncio.ensure_future(stage.supervise())
        await asyncio.sleep(0)
        self._place_decoys()
        if self.schedule.has_elder:
            self.made.append(place_elder(self.evidence, stage.clock.now()))
        stage.mortal = True
        stage.world.faults.add(*weather.faults)
        self.evidence.blindness += [Window(*span) for span in weather.blindness]
        stage.say(f"storm of {', '.join(weather.climates) or 'nothing'}")
        events = [asyncio.ensure_future(self._later(op.at_s, self._do(op))) for op in self.schedule.ops]
        events += [asyncio.ensure_future(self._jump(*jump)) for jump in weather.jumps]
        events += [asyncio.ensure_future(self._watch_outage(*span)) for span in weather.outages]
        await stage.clock.sleep(weather.storm_s)
        calm = asyncio.ensure_future(stage.until_quiet())
        await asyncio.gather(*events)
        await calm
        supervisor.cancel()

    def _place_decoys(self) -> None:
        """Put two machines of others on the account, with names that look like ours."""
        installation = self.evidence.tables.flags["installation"]
        other = "deadbeef" if installation != "deadbeef" else "feedbeef"
        stranger = f"{self.schedule.seed % 10**26:026d}"
        names = (
            "job-0",
            f"job-0--{MARK}-{other}-{stranger}-1",
            f"{MARK}-{installation}-{stranger}-1",
            f"job-0--{MARK}-{installation}-{stranger}-1x",
            f"job-0--{MARK}-{installation}",
        )
        first, pair = self.schedule.seed % 5, 1 + self.schedule.seed // 5 % 4
        for name in (names[first], names[(first + pair) % 5]):
            machine_id = self.stage.world.create(replace(_DECOY, name=name))
            self.evidence.decoys[machine_id] = name

    async def _later(self, at_s: float, work: object) -> None:
        await self.stage.clock.sleep(at_s)
        await work  # type: ignore[misc]

    async def _jump(self, at_s: float, seconds: float) -> None:
        await self.stage.clock.sleep(at_s)
        self.stage.say(f"the wall clock jumps by {seconds}")
        self.stage.clock.jump_wall(seconds)
        self.stage.note_jump()

    async def _watch_outage(self, begin_s: float, end_s: float) -> None:
        await self.stage.clock.sleep(begin_s)
        since_s, before = self.stage.clock.elapsed_s, sum(self.stage.world.calls.values())
        await self.stage.clock.sleep(end_s - begin_s)
        calls = sum(self.stage.world.calls.values()) - before
        self.evidence.outages.append(Window(since_s, self.stage.clock.elapsed_s, calls))

    async def _do(self, op: Op) -> None:
        self.stage.say(f"user: {op.kind} {op.target}")
        match op.kind:
            case "create":
                await self._create(op)
            case "duplicate":
                if self.requests:
                    await self._ask_for(self.requests[op.target % len(self.requests)])
            case "receiver_up" | "receiver_down" | "receiver_slow":
                if not self.stage.calm:
                    self.stage.receiver.mode = op.kind.removeprefix("receiver_")
            case "console_stop" | "console_start" | "console_delete" | "console_migrate":
                self._at_the_console(op)
            case _:
                if self.made:
                    await self._change(op.kind, self.made[op.target % len(self.made)])

    def _at_the_console(self, op: Op) -> None:
        """Do something past us to a machine that we have."""
        machines = [it for it in self.stage.world.alive() if it.id in self.evidence.tables.bound]
        if not machines:
            return
        machine = machines[op.target % len(machines)]
        with suppress(SimulatedError):
            getattr(self.stage.world, op.kind.removeprefix("console_"))(machine.id)
            self.evidence.coverage["changed past us"] += 1

    async def _create(self, op: Op) -> None:
        n = len(self.requests)
        request = LaunchRequest(
            name=f"job-{n}",
            wish=Herd.wish,
            webhook_url=HOOK if op.webhook else None,
            on_failure=OnFailure.KEEP if op.keep else OnFailure.DELETE,
            health_check=HealthCheck(target_port=8888) if op.health_check else None,
            claim=Claim("user", f"key-{n}", f"body-{n}"),
        )
        self.requests.append(request)
        await self._ask_for(request)

    async def _ask_for(self, request: LaunchRequest) -> None:
        async def launch(process: Process) -> Instance:
            return (await process.launch_instance(request)).instance

        assert request.claim is not None
        try:
            instance = await self.stage.ask(launch)
        except GpuherdError as refused:
            self.stage.say(f"user: refused {refused.code}")
            return
        self._accepted("create", instance.id, request.claim.key)
        if instance.id not in self.made:
            self.made.append(instance.id)

    async def _change(self, kind: str, instance_id: str) -> None:
        for _ in range(TRIES):
            try:
                await self.stage.ask(lambda process: getattr(process.change_goal, kind)(instance_id))
            except GpuherdError as refused:
                self.stage.say(f"user: refused {refused.code}")
                if refused.code not in NOT_YET:
                    return
                await self.stage.clock.sleep(TRY_AGAIN_S)
            else:
                self._accepted(kind, instance_id)
                return

    def _accepted(self, kind: str, instance_id: str, key: str = "") -> None:
        self.stage.say(f"user: accepted {kind} {instance_id}")
        self.evidence.accepted.append(Accepted(kind, instance_id, self.stage.clock.elapsed_s, key))
