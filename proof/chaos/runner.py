"""Plays one schedule to its end and returns the evidence."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

import structlog

from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.lineage import OnReclaim
from gpuherd.domain.instance.rent_attempt import TAG_PREFIX
from gpuherd.domain.money.budget import Budget
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.simulator.simulated_request import CreateRequest, SimulatedError, read_create_request
from gpuherd.usecases.cloud.guard_creates import ACCOUNT_UNCONFIRMED, VANISHING_HELD
from gpuherd.usecases.instances.goal_request import AcceptedGoal
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from gpuherd.usecases.money.manage_budgets import BudgetRequest
from proof.chaos.checks.evidence import Accepted, Evidence, Window
from proof.chaos.cloud.account_swap import OTHER_ACCOUNT, OUR_ACCOUNT, AccountSwap, SwapKind, strangers_world
from proof.chaos.cloud.copied_machines import MachineCopy, draw_copies, place_copy
from proof.chaos.cloud.recording_cloud import RecordingCloud
from proof.chaos.cloud.witness_instance import place_witness_instance
from proof.chaos.crash_injection import crash_with_probability
from proof.chaos.ends.users import extend_lease, send_beats
from proof.chaos.harness import Harness, small_catalogue
from proof.chaos.operation import UserOperation
from proof.chaos.process import Process
from proof.chaos.schedules import Schedule
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


def silence_logs(*, for_good: bool = False) -> None:
    """Keep the service's log out of the way; what it says is in the evidence.

    Unless it is `for_good`, other tests of the same process can hear it again.
    """
    if not structlog.get_config()["cache_logger_on_first_use"]:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(50), cache_logger_on_first_use=for_good
        )


def run_schedule(schedule: Schedule) -> tuple[Evidence, Harness]:
    """Play a schedule."""
    rng = Random(f"crashes {schedule.seed}")
    odds = schedule.fault_plan.crash_probability
    harness = Harness(
        schedule.seed,
        schedule.pace,
        lambda _life: crash_with_probability(rng, odds),
        downtime_s=schedule.downtime_s,
        id_reuse=schedule.id_reuse,
        ends=schedule.ends,
    )
    harness.run(_ScheduleRunner(schedule, harness).run_schedule())
    return harness.finish(), harness


class _ScheduleRunner:
    """The users and the weather of one schedule."""

    def __init__(self, schedule: Schedule, harness: Harness):
        self.schedule = schedule
        self.harness = harness
        self.evidence = harness.evidence
        self.made: list[str] = []
        self.requests: list[LaunchRequest] = []

    async def run_schedule(self) -> None:
        harness, fault_plan = self.harness, self.schedule.fault_plan
        harness.can_crash = False
        supervisor = asyncio.ensure_future(harness.supervise())
        await asyncio.sleep(0)
        self._place_decoys()
        elders = [
            place_witness_instance(self.evidence, harness.clock.now(), n)
            for n in range(self.schedule.witness_instances)
        ]
        for wanted in self.schedule.ends.budgets:
            await harness.ask(partial(_add_budget, wanted))
        # The others are left alone by users.
        self.made += elders[:1]
        harness.can_crash = True
        harness.world.faults.add(*fault_plan.faults)
        self.evidence.blind_windows += [Window(*span) for span in fault_plan.blind_windows]
        harness.say(f"storm of {', '.join(fault_plan.active_faults) or 'nothing'}")
        events = [asyncio.ensure_future(self._later(op.at_s, self._do(op))) for op in self.schedule.ops]
        events += [asyncio.ensure_future(self._jump(*jump)) for jump in fault_plan.jumps]
        events += [asyncio.ensure_future(self._watch_outage(*span)) for span in fault_plan.outages]
        copies = draw_copies(self.schedule.seed, fault_plan.fault_phase_s)
        events += [asyncio.ensure_future(self._copy(it)) for it in copies]
        if swap := self.schedule.account_swap:
            events.append(asyncio.ensure_future(self._swap_accounts(swap)))
        await harness.clock.sleep(fault_plan.fault_phase_s)
        calm = asyncio.ensure_future(harness.until_quiet())
        await asyncio.gather(*events)
        await calm
        if self.schedule.pace.keeps_ends:
            # Users may have spoken until now, and what they spoke for may have come to an end since.
            await harness.until_quiet()
        supervisor.cancel()

    def _place_decoys(self) -> None:
        """Put two machines of others on the account, with names that look like ours."""
        installation = self.evidence.tables.flags["installation"]
        other = "deadbeef" if installation != "deadbeef" else "feedbeef"
        stranger = f"{self.schedule.seed % 10**26:026d}"
        names = (
            "job-0",
            f"job-0--{TAG_PREFIX}-{other}-{stranger}-1",
            f"{TAG_PREFIX}-{installation}-{stranger}-1",
            f"job-0--{TAG_PREFIX}-{installation}-{stranger}-1x",
            f"job-0--{TAG_PREFIX}-{installation}",
        )
        first, pair = self.schedule.seed % 5, 1 + self.schedule.seed // 5 % 4
        for name in (names[first], names[(first + pair) % 5]):
            machine_id = self.harness.world.create(replace(_DECOY, name=name))
            self.evidence.add_decoy(machine_id, name)

    async def _copy(self, it: MachineCopy) -> None:
        await self.harness.clock.sleep(it.at_s)
        if place_copy(self.evidence, it.kind, _DECOY):
            self.harness.say(f"somebody else: {it.kind}")

    async def _swap_accounts(self, swap: AccountSwap) -> None:
        """Let somebody else's account come into sight, and go."""
        harness, evidence = self.harness, self.evidence
        world = strangers_world(harness.clock, self.schedule.seed, small_catalogue(), _DECOY)
        evidence.strangers = world
        other = RecordingCloud(world, latency_s=self.schedule.pace.latency_s, on_listed=harness.note_list_end)
        await harness.clock.sleep(swap.at_s)
        begin_s = harness.clock.elapsed_s
        if swap.kind is SwapKind.OTHER_KEY:
            harness.restart_with_key(OTHER_ACCOUNT, other)
        else:
            harness.show_instead(other)
        await harness.clock.sleep(swap.for_s)
        flags = evidence.tables.flags
        evidence.coverage["account doubted"] += ACCOUNT_UNCONFIRMED in flags
        evidence.coverage["loss of a herd held"] += VANISHING_HELD in flags
        if swap.kind is SwapKind.OTHER_KEY:
            harness.restart_with_key(OUR_ACCOUNT)
        else:
            harness.show_instead(None)
        evidence.blind_windows.append(Window(begin_s, harness.clock.elapsed_s))

    async def _later(self, at_s: float, work: object) -> None:
        await self.harness.clock.sleep(at_s)
        await work  # type: ignore[misc]

    async def _jump(self, at_s: float, seconds: float) -> None:
        await self.harness.clock.sleep(at_s)
        self.harness.say(f"the wall clock jumps by {seconds}")
        self.harness.clock.jump_wall(seconds)
        self.harness.note_jump(seconds)

    async def _watch_outage(self, begin_s: float, end_s: float) -> None:
        await self.harness.clock.sleep(begin_s)
        since_s, before = self.harness.clock.elapsed_s, sum(self.harness.world.calls.values())
        await self.harness.clock.sleep(end_s - begin_s)
        calls = sum(self.harness.world.calls.values()) - before
        self.evidence.outages.append(Window(since_s, self.harness.clock.elapsed_s, calls))

    async def _do(self, op: UserOperation) -> None:
        harness = self.harness
        harness.say(f"user: {op.kind} {op.target}")
        match op.kind:
            case "create":
                await self._create(op)
            case "duplicate":
                if self.requests:
                    await self._ask_for(self.requests[op.target % len(self.requests)])
            case "receiver_up" | "receiver_down" | "receiver_slow":
                if not self.harness.calm:
                    self.harness.receiver.mode = op.kind.removeprefix("receiver_")
            case "extend":
                if self.made:
                    await extend_lease(harness, self.made[op.target % len(self.made)], op)
            case "console_stop" | "console_start" | "console_delete" | "console_migrate":
                self._at_the_console(op)
            case _:
                if self.made:
                    await self._change(op.kind, self.made[op.target % len(self.made)])

    def _at_the_console(self, op: UserOperation) -> None:
        """Do something past us to a machine that we have."""
        machines = [it for it in self.harness.world.alive() if it.id in self.evidence.tables.bound]
        if not machines:
            return
        machine = machines[op.target % len(machines)]
        with suppress(SimulatedError):
            getattr(self.harness.world, op.kind.removeprefix("console_"))(machine.id)
            self.evidence.coverage["changed past us"] += 1

    async def _create(self, op: UserOperation) -> None:
        n = len(self.requests)
        request = LaunchRequest(
            name=f"job-{n}",
            wish=replace(
                Herd.wish,
                disk_gb=op.disk_gb,
                hourly_usd_max=op.hourly_usd_max,
                capacity_wait_s=op.capacity_wait_s,
            ),
            webhook_url=HOOK if op.webhook else None,
            on_failure=OnFailure.KEEP if op.keep else OnFailure.DELETE,
            health_check=HealthCheck(target_port=8888) if op.health_check else None,
            claim=IdempotencyClaim("user", f"key-{n}", f"body-{n}"),
            terms=op.terms,
            labels=dict(op.labels),
            on_reclaim=OnReclaim.REPLACE if op.is_replaced else OnReclaim.NONE,
            handover_s=op.handover_s,
        )
        if self.schedule.pace.keeps_ends:
            request = replace(request, caller=ADMIN)
            self.harness.uses[request.name] = op.use
        self.requests.append(request)
        instance_id = await self._ask_for(request)
        if instance_id is not None and op.beats_for_s:
            await send_beats(self.harness, instance_id, op)

    async def _ask_for(self, request: LaunchRequest) -> str | None:
        async def launch(process: Process) -> Instance:
            return (await process.launch_request(request)).instance

        assert request.claim is not None
        try:
            instance = await self.harness.ask(launch)
        except GpuherdError as refused:
            self.harness.say(f"user: refused {refused.code}")
            self.evidence.coverage["refused by a budget"] += refused.code == "BUDGET_EXHAUSTED"
            return None
        self._accepted("create", instance.id, request.claim.key)
        if instance.id not in self.made:
            self.made.append(instance.id)
        return instance.id

    async def _change(self, kind: str, instance_id: str) -> None:
        if self.schedule.has_heirs:
            await self._change_named(kind, instance_id)
            return
        for _ in range(TRIES):
            try:
                await self.harness.ask(lambda process: getattr(process, kind)(instance_id))
            except GpuherdError as refused:
                self.harness.say(f"user: refused {refused.code}")
                if refused.code not in NOT_YET:
                    return
                await self.harness.clock.sleep(TRY_AGAIN_S)
            else:
                self._accepted(kind, instance_id)
                return

    async def _change_named(self, kind: str, instance_id: str) -> None:
        """Mean whichever of a lineage has the name now."""
        name = self.evidence.tables.instances[instance_id].instance.name

        async def change(process: Process) -> AcceptedGoal:
            if kind == "replace":
                return await process.replace(name)
            accepted: AcceptedGoal = await getattr(process, kind)(name, by_name=True)
            return accepted

        for _ in range(TRIES):
            try:
                done = await self.harness.ask(change)
            except GpuherdError as refused:
                self.harness.say(f"user: refused {refused.code}")
                self.evidence.ambiguous_names += refused.code == "AMBIGUOUS_NAME"
                if refused.code not in NOT_YET:
                    return
                await self.harness.clock.sleep(TRY_AGAIN_S)
            else:
                self._accepted(kind, done.instance.id)
                return

    def _accepted(self, kind: str, instance_id: str, key: str = "") -> None:
        self.harness.say(f"user: accepted {kind} {instance_id}")
        self.evidence.accepted.append(Accepted(kind, instance_id, self.harness.clock.elapsed_s, key))


async def _add_budget(wanted: BudgetRequest, process: Process) -> Budget:
    return await process.add_budget(wanted, ADMIN)
