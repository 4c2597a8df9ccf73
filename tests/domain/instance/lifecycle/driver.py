"""Instances in every situation, and whole lives of them: moved by their steps as the use cases move them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance import goal_rules
from gpuherd.domain.instance.goal_rules import StartOrder
from gpuherd.domain.instance.health import HealthCheck, HealthStatus
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_state import must_release
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.next_step import next_step
from gpuherd.domain.instance.operation import (
    Failure,
    Operation,
    OperationKind,
    OperationPhase,
    progress,
    requested,
)
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState
from gpuherd.domain.instance.step_types import (
    AbandonRestart,
    AbandonStart,
    Become,
    ConfirmRestart,
    Delete,
    Fail,
    LookForRestart,
    Observation,
    ReadDetails,
    Released,
    Rent,
    Resolve,
    Restart,
    RunHealthCheck,
    Settled,
    Start,
    Step,
    Stop,
    UseListedDetails,
    Wait,
)

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
DEADLINE = CREATED + timedelta(minutes=20)
EARLY = CREATED + timedelta(minutes=5)
CHECK = HealthCheck(target_port=8888)


def an_instance(status: Status = Status.CREATING, **changes: Any) -> Instance:
    return Instance(
        id="inst_1",
        name="job",
        wish=LaunchSpec("RTX 4090 24GB", "101"),
        status=status,
        created_at=CREATED,
        estimated_ready_at=CREATED + timedelta(minutes=4),
        **{"goal": Goal.RUNNING, "deadline": DEADLINE, **changes},
    )


def an_attempt(state: AttemptState) -> Attempt:
    return Attempt(
        "inst_1", 1, "tag", state, "4090", "RTX 4090 24GB", "HK", "hk-1", Decimal("0.35"), CREATED, "boot"
    )


def an_operation(kind: OperationKind, at: datetime = EARLY - timedelta(minutes=2)) -> Operation:
    return requested(f"op_{kind}", kind, at)


def a_failure(at: datetime = EARLY) -> Failure:
    return Failure("STARTUP_FAILED", "the cloud could not start the machine", at)


def a_machine(phase: Phase, error: str = "", raw_status: str = "") -> Machine:
    return Machine("m-1", "job", phase, raw_status or phase.value, error)


def seen(phase: Phase, error: str = "") -> Observation:
    """What a turn is shown; absence is proven by lists, whatever the machine looked like last."""
    if phase is Phase.ABSENT:
        return Observation(a_machine(Phase.RUNNING, error), absent=True)
    return Observation(a_machine(phase, error))


class World(Protocol):
    """What a life meets: what is shown of the machine, and what becomes of each call."""

    def shown(self) -> Observation: ...
    def rent(self) -> AttemptState: ...
    def resolve(self) -> AttemptState: ...
    def runs_indeed(self) -> bool: ...
    def health(self) -> HealthStatus: ...
    def ask(self, step: Step) -> bool: ...


# What a machine may show that was thought lost.
FOUND_AGAIN = frozenset({Status.RUNNING, Status.READY, Status.EXITED})


@dataclass(frozen=True)
class Told:
    """A status that the world was told, and in which chapter: an order or a start past us opens a new one."""

    chapter: int
    status: Status
    at: datetime


@dataclass
class Life:
    """An instance with its user, as `advance_instance`, `take_step` and `change_goal` would move it."""

    instance: Instance
    now: datetime = CREATED
    attempt: Attempt | None = None
    bound: int = 0
    told: list[Told] = field(default_factory=lambda: [Told(0, Status.CREATING, CREATED)])
    # One word a chapter: who opened it.
    chapters: list[str] = field(default_factory=lambda: ["create"])
    asked: list[tuple[Step, datetime]] = field(default_factory=list)
    # Every operation that was accepted, as it is or as it ended.
    operations: dict[str, Operation] = field(default_factory=dict)

    def order(self, kind: OperationKind, check: HealthCheck | None = None) -> bool:
        """Let the user change the goal; tell whether that was accepted as something new."""
        before, op_id = self.instance, f"op_{len(self.operations)}"
        try:
            match kind:
                case OperationKind.START:
                    after = goal_rules.start(before, StartOrder(check), op_id, self.now)
                case OperationKind.RESTART:
                    after = goal_rules.restart(before, StartOrder(), op_id, self.now)
                case OperationKind.STOP:
                    after = goal_rules.stop(before, op_id, self.now)
                case OperationKind.DELETE:
                    after = goal_rules.delete(before, op_id, self.now)
        except Conflict:
            return False
        if after is before:
            return False
        if (put_aside := goal_rules.superseded(before, self.now)) is not None:
            self.operations[put_aside.id] = put_aside
        self.chapters.append(kind.value)
        self._save(after)
        return True

    def turn(self, world: World) -> Step:
        """Take steps until there is nothing to do but wait, and return the last one."""
        for _ in range(12):
            observation = Observation() if self.instance.cloud_id is None else world.shown()
            step = next_step(self.instance, self.attempt, observation, self.now)
            if isinstance(step, Wait | Settled) or not self._take(step, world):
                return step
        raise AssertionError(f"spins on {step} in {self.instance}")

    @property
    def is_open(self) -> bool:
        return self.attempt is not None and self.attempt.is_open

    def _take(self, step: Step, world: World) -> bool:
        """Do as the step says; tell whether another step may follow at once."""
        match step:
            case Rent():
                assert not self.is_open, "the machine of the last call may exist"
                return self._outcome(world.rent())
            case Resolve():
                return self._outcome(world.resolve())
            case ReadDetails():
                return world.runs_indeed() and self._run()
            case UseListedDetails():
                return self._run()
            case RunHealthCheck():
                return self._judge(world.health())
            case Become(status):
                stopped_at = self.now if status is Status.EXITED else self.instance.stopped_at
                self._save(replace(self.instance, status=status, stopped_at=stopped_at))
            case Fail(code, reason):
                self._fail(code, reason)
            case Start() | Stop() | Delete():
                return self._ask(step, world)
            case AbandonStart(code, reason):
                self._abandon_start(code, reason)
            case Restart():
                return self._ask_restart(step, world)
            case LookForRestart():
                return not world.runs_indeed() and self._confirm_restart()
            case ConfirmRestart():
                return self._confirm_restart()
            case AbandonRestart(code, reason):
                return self._abandon_restart(code, reason)
            case Released():
                self._save(replace(self.instance, releasing=False))
        return True

    def _outcome(self, state: AttemptState) -> bool:
        self.attempt = an_attempt(state)
        if state is AttemptState.BOUND:
            self.bound += 1
            self._save(replace(self.instance, cloud_id="m-1"))
        return state is AttemptState.BOUND

    def _run(self) -> bool:
        it = self.instance
        if it.status is Status.EXITED:
            self.chapters.append("past us")
        if it.status is Status.MIGRATING:
            self.chapters.append("moved")
        ready_at = it.ready_at or self.now if it.health_check is None else it.ready_at
        self._save(
            replace(it, goal=Goal.RUNNING, status=Status.RUNNING, started_at=self.now, ready_at=ready_at)
        )
        return True

    def _judge(self, verdict: HealthStatus) -> bool:
        it = self.instance
        assert it.health_check is not None, "only what is to be checked is checked"
        if verdict is HealthStatus.PASSED:
            self._save(replace(it, status=Status.READY, ready_at=it.ready_at or self.now))
        elif verdict is HealthStatus.FAILED:
            self._fail("HEALTH_CHECK_FAILED", "no answer")
        return verdict is not HealthStatus.IN_PROGRESS

    def _fail(self, code: str, reason: str) -> None:
        it = self.instance
        self._save(
            replace(
                it,
                status=Status.FAILED,
                last_error=Failure(code, reason, self.now),
                releasing=must_release(it) and (it.cloud_id is not None or self.is_open),
                asked_at=None,
            )
        )

    def _ask(self, step: Step, world: World) -> bool:
        self.asked.append((step, self.now))
        self._save(replace(self.instance, asked_at=self.now))
        if world.ask(step) or not isinstance(step, Start):
            return False
        self._abandon_start("RESOURCE_CONSTRAINTS", "sold out")
        return True

    def _abandon_start(self, code: str, reason: str) -> None:
        error = Failure(code, reason, self.now)
        self._save(replace(self.instance, goal=Goal.STOPPED, status=Status.EXITED, last_error=error))

    def _ask_restart(self, step: Step, world: World) -> bool:
        self.asked.append((step, self.now))
        self._save(replace(self.instance, asked_at=self.now))
        if world.ask(step):
            self._reach(OperationPhase.RESTARTING)
        # Else there was no answer.
        return False

    def _confirm_restart(self) -> bool:
        self._reach(OperationPhase.RESTARTING)
        self._reach(OperationPhase.STARTING)
        return True

    def _reach(self, phase: OperationPhase) -> None:
        assert self.instance.operation is not None
        self._save(replace(self.instance, operation=self.instance.operation.reached(phase, self.now)))

    def _abandon_restart(self, code: str, reason: str) -> bool:
        assert self.instance.operation is not None
        ended = self.instance.operation.failed(Failure(code, reason, self.now))
        self._save(replace(self.instance, operation=ended, asked_at=None))
        return True

    def _save(self, instance: Instance) -> None:
        """Remember it, with its operation as far as its status says."""
        if (operation := instance.operation) is not None:
            operation = progress(
                operation, instance.status.value, instance.usable, instance.last_error, self.now
            )
            self.operations[operation.id] = operation
            instance = replace(instance, operation=operation)
        chapter = len(self.chapters) - 1
        if self.told[-1] == Told(chapter, Status.FAILED, self.told[-1].at) and instance.status in FOUND_AGAIN:
            self.chapters.append("found again")
            chapter += 1
        if (chapter, instance.status) != (self.told[-1].chapter, self.told[-1].status):
            self.told.append(Told(chapter, instance.status, self.now))
        self.instance = instance
