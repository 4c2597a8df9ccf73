"""Applies a step: what each decision of the lifecycle means for the cloud and the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Machine, Phase, ReclaimNotice
from gpuherd.domain.errors import MachineGone
from gpuherd.domain.instance import instance_event, step_types
from gpuherd.domain.instance.health import Health, HealthStatus, explain_health
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_state import is_restarting, is_starting_again, must_release
from gpuherd.domain.instance.operation import Failure
from gpuherd.domain.instance.scheduled_end import End, WarnData, WarnLease
from gpuherd.domain.instance.step_types import Step
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.instance_port import InstanceLeases, LeasedInstance
from gpuherd.usecases.cloud.guard_creates import InstallationAlarm
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.reconcile.adopt_machine import (
    Ownership,
    ResolveAttempt,
    VerifyOwnMachine,
    VerifyTag,
    listed_machine,
)
from gpuherd.usecases.reconcile.command_machine import (
    RESTART_RECHECK,
    RequestMachine,
    RestartMachine,
    StartMachine,
)
from gpuherd.usecases.reconcile.end_instance import EndInstance, RecordReclaim
from gpuherd.usecases.reconcile.reconcile_context import RECHECK_SOON, RequeueAfter, StepResult
from gpuherd.usecases.reconcile.rent_machine import (
    CannotRent,
    CreateAttempted,
    RentLater,
    RentMachine,
)
from gpuherd.usecases.service.make_jobs import JobFactory

log = structlog.get_logger()


# A health check has a job of its own; so often we see to it that it is there.
HEALTH_JOB_CHECK = timedelta(seconds=30)


HELD_RELEASE_RECHECK = timedelta(seconds=30)


# So soon a machine that is to be stopped or removed, and that the cloud has denied, is asked for again.
DENIED_RECHECK = timedelta(seconds=5)


@dataclass(frozen=True, kw_only=True)
class ApplyStep:
    """Acts on the cloud and remembers, one step at a time."""

    instance_leases: InstanceLeases
    cloud: Cloud
    event_recorder: EventRecorder
    rent: RentMachine
    alarm: InstallationAlarm
    resolve: ResolveAttempt
    job_factory: JobFactory
    verify_tag: VerifyTag
    own_machine: VerifyOwnMachine
    request: RequestMachine
    start: StartMachine
    restart: RestartMachine
    reclaim: RecordReclaim
    end: EndInstance
    clock: Clock
    read_clocks: Callable[[], ClockReading]

    async def __call__(self, step: Step, leased: LeasedInstance) -> StepResult:
        """Take one step; return the instance after it, and a pause if the next look must wait.

        `CloudUnavailable` or `KeyRefused` from here: surely nothing was changed in the cloud.
        """
        # guard: an instance that ends after a loss of the store takes its machine with it
        if _ends_without_machine(step, leased):
            # The store may have lost the call that made one, and with this it would be nobody's.
            leased = await self.instance_leases.refresh(leased)
            if (found := await self.rent.find_lost(leased)) is not None:
                return _as_result(found)
        match step:
            case step_types.Resolve():
                return await self._resolve(leased)
            case step_types.Rent():
                return await self._rent(leased)
            case step_types.ReadDetails():
                return await self._read_details(leased)
            case step_types.UseListedDetails(machine, since):
                # Its tag was verified when the pass began.
                return await self._begin_run(leased, machine, since), None
            case step_types.RunHealthCheck():
                return await self._ask_application(leased)
            case step_types.Become():
                return await self._become(leased, step), None
            case step_types.AnnounceReclaim():
                return await self.reclaim.announce(leased), None
            case step_types.FollowReclaim(reclaim_at):
                return await self.reclaim.follow(leased, reclaim_at), None
            case step_types.WithdrawReclaim():
                return await self.reclaim.withdraw(leased), None
            case End() | WarnLease() | WarnData():
                return await self.end(leased, step), None
            case step_types.Fail(code, reason):
                return await self._fail(leased, code, reason), None
            case step_types.Start():
                return await self.start.ask(leased)
            case step_types.AbandonStart(code, reason):
                return await self.start.abandon(leased, code, reason), None
            case step_types.Restart():
                return await self.restart.ask(leased)
            case step_types.LookForRestart():
                return await self.restart.look_for_effect(leased)
            case step_types.ConfirmRestart():
                return await self.restart.confirm(leased), None
            case step_types.AbandonRestart(code, reason):
                return await self.restart.abandon(leased, code, reason), None
            case step_types.Stop():
                return await self._stop(leased)
            case step_types.Delete():
                return await self._delete(leased)
            case step_types.Released():
                released = replace(leased.instance, releasing=False)
                return await self._save(
                    leased, released, NewEvent(instance_event.RELEASED, "the machine is gone")
                ), None
            case _:
                return leased, None

    async def _resolve(self, leased: LeasedInstance) -> StepResult:
        attempt = leased.open_attempt
        assert attempt is not None, "only an open attempt is resolved"
        leased, delay = await self.resolve(leased, attempt)
        return leased, None if delay is None else RequeueAfter(delay)

    async def _rent(self, leased: LeasedInstance) -> StepResult:
        outcome = await self.rent(leased)
        if isinstance(outcome, CannotRent):
            return await self._fail(outcome.leased, outcome.code, outcome.reason, outcome.details), None
        return _as_result(outcome)

    async def _read_details(self, leased: LeasedInstance) -> StepResult:
        try:
            machine = await self.cloud.get_machine(leased.instance.cloud_id or "")
        except MachineGone:
            # One "not found" proves nothing; the lists decide whether it vanished.
            return leased, RequeueAfter(RECHECK_SOON)
        if machine.phase is not Phase.RUNNING:
            return leased, RequeueAfter(RESTART_RECHECK if is_restarting(leased.instance) else RECHECK_SOON)
        leased = await self.verify_tag(leased, machine)
        return await self._begin_run(leased, machine, self.clock.now()), None

    async def _begin_run(self, leased: LeasedInstance, machine: Machine, seen_at: datetime) -> LeasedInstance:
        """Say that the machine runs and how to connect, as was seen at that moment."""
        it = leased.instance
        running = replace(
            it,
            # Whoever started it past us wants it to run.
            goal=Goal.RUNNING,
            status=Status.RUNNING,
            reason="running",
            waiting_for=None,
            ports=machine.ports,
            connection=machine.connection,
            started_at=seen_at,
            start_wait=None,
            # What was known of an earlier run says nothing about this one.
            health=None,
            reclaim=None,
        )
        new_events = [
            NewEvent(
                instance_event.STATUS_EVENTS[Status.RUNNING], "", {}, it.status.value, Status.RUNNING.value
            )
        ]
        if it.health_check is None:
            now = self.clock.now()
            running = replace(running, ready_at=it.ready_at or now, usable_at=_usable_at(it, now))
            new_events += [NewEvent(instance_event.READY, "usable"), *_taken_over(it)]
        return await self._save(leased, running, *new_events)

    async def _ask_application(self, leased: LeasedInstance) -> StepResult:
        """Leave it to a job of its own: an application that hangs must not hold the lease, nor our slot."""
        change = self.event_recorder.change(leased.instance)
        asked = replace(change, jobs=(*change.jobs, self.job_factory.health_job(leased.instance)))
        return await self.instance_leases.save(leased, asked), RequeueAfter(HEALTH_JOB_CHECK)

    async def record_health(self, leased: LeasedInstance, health: Health) -> LeasedInstance:
        """Remember what a round has shown, and what follows from it."""
        it, now = leased.instance, self.clock.now()
        match health.status:
            case HealthStatus.PASSED:
                ready = replace(
                    it,
                    status=Status.READY,
                    reason="the application answers",
                    waiting_for=None,
                    health=health,
                    ready_at=it.ready_at or now,
                    usable_at=_usable_at(it, now),
                )
                new_event = NewEvent(
                    instance_event.READY, ready.reason, {}, it.status.value, Status.READY.value
                )
                return await self._save(leased, ready, new_event, *_taken_over(it))
            case HealthStatus.FAILED:
                leased = replace(leased, instance=replace(it, health=health))
                reason = f"the application did not answer as it should: {explain_health(health)}"
                return await self._fail(leased, "HEALTH_CHECK_FAILED", reason)
            case _:
                reason = f"waiting for the application: {explain_health(health)}"
                return await self._save(leased, replace(it, health=health, reason=reason, waiting_for=None))

    async def _become(self, leased: LeasedInstance, step: step_types.Become) -> LeasedInstance:
        it, status, now = leased.instance, step.status, self.clock.now()
        stopped_at = now if status is Status.EXITED else it.stopped_at
        reason = step.reason or _REASONS.get(status, "")
        # Also where no list has shown a notice.
        reclaim = it.reclaim or ReclaimNotice(now, None, now) if step.is_loss else it.reclaim
        changed = replace(
            it, status=status, reason=reason, waiting_for=None, stopped_at=stopped_at, reclaim=reclaim
        )
        # guard: what was thought lost was not silent
        if changed.usable and not it.usable:
            # While it was thought lost, or moved, nobody could use it.
            changed = replace(changed, usable_at=_usable_at(it, self.clock.now()))
        new_event = NewEvent(
            instance_event.STATUS_EVENTS[status], changed.reason, {}, it.status.value, status.value
        )
        saved = await self._save(leased, changed, new_event)
        if step.is_loss:
            await self.reclaim.note_loss(it, now)
        return saved

    async def _delete(self, leased: LeasedInstance) -> StepResult:
        wanted = leased.instance.goal is Goal.DELETED
        # guard: under the alarm nothing is given back by itself
        if not wanted and (reason := await self.alarm.reason()):
            # The other database may have made this machine, and its user may be content with it.
            return leased, RequeueAfter(HELD_RELEASE_RECHECK, f"the machine is not given back: {reason}")
        # guard: a delete is repeated on our own machine only
        if (whose := await self.own_machine.before_removal(leased)) is not Ownership.OURS:
            return await self._leave_alone(leased, whose)
        return await self.request(leased, self.cloud.delete_machine)

    async def _stop(self, leased: LeasedInstance) -> StepResult:
        # guard: a stop under an id that may be another's is preceded by a question
        if (whose := await self.own_machine.before_stop(leased)) is not Ownership.OURS:
            return await self._leave_alone(leased, whose)
        return await self.request(leased, self.cloud.stop_machine)

    async def _leave_alone(self, leased: LeasedInstance, whose: Ownership) -> StepResult:
        """What has the id now is not ours to stop or remove; that ours is gone is for the lists to prove."""
        operation, asked_at = leased.instance.operation, leased.instance.asked_at
        # What was asked before the present operation was something else.
        is_first = asked_at is None or (operation is not None and asked_at < operation.requested_at)
        if whose is Ownership.DENIED and is_first and listed_machine(leased) is not None:
            # It may be there all the same, and costs money. Of what was never listed, though, only the lists
            # since the first request tell that it is gone.
            return leased, RequeueAfter(DENIED_RECHECK)
        leased = await self._save(leased, replace(leased.instance, asked_at=self.clock.now()))
        return leased, RequeueAfter(RECHECK_SOON)

    async def _fail(
        self, leased: LeasedInstance, code: str, reason: str, details: Mapping[str, Any] | None = None
    ) -> LeasedInstance:
        it = leased.instance
        has_machine = it.cloud_id is not None or leased.open_attempt is not None
        failed = replace(
            it,
            status=Status.FAILED,
            reason=reason,
            waiting_for=None,
            last_error=Failure(code, reason, self.clock.now(), dict(details or {})),
            releasing=must_release(it) and has_machine,
            asked_at=None,
        )
        story = {"code": code, "start": is_starting_again(it), **(details or {})}
        # One that had failed before, and was kept, does not change its status.
        change = () if it.status is Status.FAILED else (it.status.value, Status.FAILED.value)
        new_events = [NewEvent(instance_event.FAILED, reason, story, *change)]
        if code in _TIMEOUTS:
            new_events.insert(0, NewEvent(instance_event.TIMEOUT, reason, story))
        log.warning("instance.failed", instance_id=it.id, code=code, reason=reason)
        return await self._save(leased, failed, *new_events)

    async def _save(
        self, leased: LeasedInstance, instance: Instance, *new_events: NewEvent
    ) -> LeasedInstance:
        change = self.event_recorder.change(instance, *new_events)
        if change.ends_machine:
            # guard: what no list has shown is placed by the time since its call, however the clock was set
            change = replace(change, reading=self.read_clocks())
        return await self.instance_leases.save(leased, change)


def _ends_without_machine(step: Step, leased: LeasedInstance) -> bool:
    """Return True if an instance ends that has never had a machine, as far as is known."""
    ends = isinstance(step, step_types.Fail) or step == step_types.Become(Status.DELETED)
    # guard: an instance that has had its machine takes no other one with it
    return ends and leased.instance.last_cloud_id is None and leased.open_attempt is None


def _as_result(outcome: CreateAttempted | RentLater) -> StepResult:
    if isinstance(outcome, CreateAttempted):
        return outcome.leased, None
    later = RequeueAfter(outcome.delay, outcome.reason, outcome.waiting, outcome.record)
    return outcome.leased, later


def _taken_over(it: Instance) -> tuple[NewEvent, ...]:
    """Return what an heir tells when it can be used for the first time."""
    old = None if it.chain is None else it.chain.replaces
    if old is None or it.ready_at is not None:
        return ()
    return (NewEvent(instance_event.REPLACED, f"takes over from {old}", {"replaces": old}),)


def _usable_at(it: Instance, now: datetime) -> datetime | None:
    """Return what to remember of the begin of a run: only an end for lack of use depends on it."""
    return now if it.terms.silence is not None or it.terms.idle is not None else None


_TIMEOUTS = frozenset({"INSTANCE_TIMEOUT", "OUTCOME_UNKNOWN", "STARTUP_TIMEOUT"})


_REASONS = {
    Status.STARTING: "the machine is starting",
    Status.HEALTH_CHECKING: "asking the application whether it is up",
    Status.EXITED: "the machine stopped",
    Status.MIGRATING: "the cloud moves the machine to another host",
    Status.DELETED: "the machine is gone",
}
