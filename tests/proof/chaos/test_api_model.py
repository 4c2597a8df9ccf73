"""Any sequence of requests, deaths and faults against a small model of what the API promises.

Hypothesis chooses the sequence, and shrinks one that breaks the model to the few steps that matter.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import HealthCheck as HypothesisCheck
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from gpuherd.domain.errors import Conflict, IdempotencyKeyReused
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from proof.chaos.checks.checker import check
from proof.chaos.checks.evidence import Accepted
from proof.chaos.checks.money_checker import machine_lifetimes, overlaps, owner_by_tag
from proof.chaos.crash_injection import never_crash
from proof.chaos.harness import Harness
from proof.chaos.process import Pace, Process
from proof.chaos.runner import HOOK, silence_logs
from tests.support.herd import Herd

T = TypeVar("T")

CHANGES = (ApiEndpoint.CREATE, ApiEndpoint.START, ApiEndpoint.STOP, ApiEndpoint.DELETE)
# Each lasts a while; none acts later than we wait.
FAULTS = (
    Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=CHANGES),
    Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1, endpoints=CHANGES),
    Fault(FaultKind.LATE_COMMIT, count=1, seconds=60, endpoints=CHANGES),
    Fault(FaultKind.OUTAGE, for_s=60),
    Fault(FaultKind.EMPTY_LIST, for_s=60),
    Fault(FaultKind.SOLD_OUT, count=1),
    Fault(FaultKind.STATUS_FLAP, for_s=60, probability=0.5),
)
STOPPABLE = {"starting", "running", "health_checking", "ready", "migrating"}


@dataclass
class Known:
    """What the model knows of one instance."""

    id: str
    deletion: str = ""
    sequence: int = 0
    deleted: bool = False


class ApiModel(RuleBasedStateMachine):
    """The use cases behind the API, and what they must answer."""

    instances = Bundle("instances")

    def __init__(self) -> None:
        super().__init__()
        silence_logs()
        self.harness = Harness(1, Pace(look_s=20.0, max_wait_s=3600.0), lambda _: never_crash, downtime_s=5.0)
        self.claims: dict[str, tuple[str, Known]] = {}
        self.known: list[Known] = []
        asyncio.set_event_loop(self.harness.loop)
        self.supervisor = self.harness.loop.create_task(self.harness.supervise())
        self.do(asyncio.sleep(0))

    def do(self, work: Awaitable[T]) -> T:
        async def working() -> T:
            return await work

        return self.harness.loop.run(working())

    def ask(self, call: Callable[[Process], Awaitable[T]]) -> T:
        return self.do(self.harness.ask(call))

    def now(self, it: Known) -> Instance:
        return self.harness.evidence.tables.instances[it.id].instance

    def accepted(self, kind: str, it: Known, key: str = "") -> None:
        self.harness.evidence.accepted.append(Accepted(kind, it.id, self.harness.clock.elapsed_s, key))

    @rule(target=instances, key=st.sampled_from("abc"), body=st.sampled_from("xy"))
    def launch(self, key: str, body: str) -> object:
        request = LaunchRequest("job", Herd.wish, webhook_url=HOOK, claim=IdempotencyClaim("user", key, body))
        try:
            answer = self.ask(lambda process: process.launch_request(request))
        except IdempotencyKeyReused:
            assert self.claims[key][0] != body
            return multiple()
        if key in self.claims:
            before, it = self.claims[key]
            assert before == body
            assert (answer.replayed, answer.instance.id) == (True, it.id)
            return multiple()
        assert not answer.replayed
        it = Known(answer.instance.id)
        self.claims[key] = (body, it)
        self.known.append(it)
        self.accepted("create", it, key)
        return it

    @rule(it=instances)
    def start(self, it: Known) -> None:
        before = self.now(it)
        try:
            after = self.ask(lambda process: process.start(it.id)).instance
        except Conflict as refused:
            under_way = refused.code == "STARTUP_OPERATION_IN_PROGRESS"
            assert under_way or before.status is not Status.EXITED
            return
        assert before.status is Status.EXITED
        assert after.status is Status.STARTING
        self.accepted("start", it)

    @rule(it=instances)
    def stop(self, it: Known) -> None:
        before = self.now(it)
        try:
            after = self.ask(lambda process: process.stop(it.id)).instance
        except Conflict:
            assert before.status.value not in STOPPABLE or before.cloud_id is None
            return
        again = before.operation is not None and before.status is Status.STOPPING
        assert again or before.status.value in STOPPABLE or before.status is Status.FAILED
        assert after.status is Status.STOPPING
        self.accepted("stop", it)

    @rule(it=instances)
    def delete(self, it: Known) -> None:
        after = self.ask(lambda process: process.delete(it.id))
        assert it.deletion in ("", after.operation.id), "deleting twice is one delete"
        it.deletion = after.operation.id
        self.accepted("delete", it)

    @rule(it=consumes(instances))
    def forget(self, it: Known) -> None:
        """Lose interest, so that others get their turn."""

    @rule(seconds=st.sampled_from([1.0, 15.0, 60.0, 240.0]))
    def wait(self, seconds: float) -> None:
        self.do(self.harness.clock.sleep(seconds))

    @rule()
    def kill(self) -> None:
        if self.harness.process is not None:
            self.harness.process.crash_injector.dead = True
            self.harness.process.died.set()
        self.do(self.harness.clock.sleep(0.5))

    @rule(fault=st.sampled_from(FAULTS))
    def go_wrong(self, fault: Fault) -> None:
        self.harness.world.faults.add(fault)

    @invariant()
    def nothing_goes_back(self) -> None:
        for it in self.known:
            now = self.now(it)
            assert now.sequence >= it.sequence
            assert now.status is Status.DELETED or not it.deleted
            assert not it.deletion or now.status in (Status.DELETING, Status.DELETED)
            it.sequence, it.deleted = now.sequence, now.status is Status.DELETED

    @invariant()
    def nobody_pays_twice(self) -> None:
        self.harness.evidence.ended_s = self.harness.clock.elapsed_s
        assert not list(overlaps(list(machine_lifetimes(self.harness.evidence, owner_by_tag))))

    def teardown(self) -> None:
        self.do(self.harness.until_quiet())
        self.supervisor.cancel()
        evidence = self.harness.finish()
        self.harness.close()
        assert check(evidence) == []
        for it in self.known:
            assert bool(it.deletion) == (self.now(it).status is Status.DELETED)


ApiModel.TestCase.settings = settings(
    max_examples=int(os.environ.get("API_EXAMPLES", "40")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HypothesisCheck.too_slow, HypothesisCheck.filter_too_much],
)
TestApi = ApiModel.TestCase
