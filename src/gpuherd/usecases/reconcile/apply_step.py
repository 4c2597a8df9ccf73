"""Applies a step: what each decision of the lifecycle means for the cloud and the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.spot_reclaim import ReclaimNotice
from gpuherd.domain.endings.ending import End, WarnData, WarnLease
from gpuherd.domain.errors import (
    MachineGone,
)
from gpuherd.domain.instance import events
from gpuherd.domain.instance.failure import Failure
from gpuherd.domain.instance.health import Health, HealthStatus, explain_health
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lifecycle import steps
from gpuherd.domain.instance.lifecycle.conditions import (
    is_restarting,
    is_starting_again,
    must_release,
)
from gpuherd.domain.instance.lifecycle.steps import Step
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.cloud.installation_alarm import InstallationAlarm
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.jobs.kinds import JobFactory
from gpuherd.usecases.reconcile.end_instance import EndInstance
from gpuherd.usecases.reconcile.own_machine import Ownership, VerifyOwnMachine, listed_machine
from gpuherd.usecases.reconcile.record_reclaim import RecordReclaim
from gpuherd.usecases.reconcile.rent import CannotRent, CreateAttempted, RentLater, RentMachine
from gpuherd.usecases.reconcile.request_machine import RequestMachine
from gpuherd.usecases.reconcile.resolve_attempt import ResolveAttempt
from gpuherd.usecases.reconcile.start.restart_machine import RESTART_RECHECK, RestartMachine
from gpuherd.usecases.reconcile.start.start_machine import StartMachine
from gpuherd.usecases.reconcile.step_result import RECHECK_SOON, RequeueAfter, StepResult
from gpuherd.usecases.reconcile.verify_tag import VerifyTag

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
            case steps.Resolve():
                return await self._resolve(leased)
            case steps.Rent():
                return await self._rent(leased)
            case steps.ReadDetails():
                return await self._read_details(leased)
            case steps.UseListedDetails(machine, since):
                # Its tag was verified when the pass began.
                return await self._begin_run(leased, machine, since), None
            case steps.RunHealthCheck():
                return await self._ask_application(leased)
            case steps.Become():
                return await self._become(leased, step), None
            case steps.AnnounceReclaim():
                return await self.reclaim.announce(leased), None
            case steps.FollowReclaim(reclaim_at):
                return await self.reclaim.follow(leased, reclaim_at), None
            case steps.WithdrawReclaim():
                return await self.reclaim.withdraw(leased), None
            case End() | WarnLease() | WarnData():
                return await self.end(leased, step), None
            case steps.Fail(code, reason):
                return await self._fail(leased, code, reason), None
            case steps.Start():
                return await self.start.ask(leased)
            case steps.AbandonStart(code, reason):
                return await self.start.abandon(leased, code, reason), None
            case steps.Restart():
                return await self.restart.ask(leased)
            case steps.LookForRestart():
                return await self.restart.look_for_effect(leased)
            case steps.ConfirmRestart():
                return await self.restart.confirm(leased), None
            case steps.AbandonRestart(code, reason):
                return await self.restart.abandon(leased, code, reason), None
            case steps.Stop():
                return await self._stop(leased)
            case steps.Delete():
                return await self._delete(leased)
            case steps.Released():
                released = replace(leased.instance, releasing=False)
                return await self._save(
                    leased, released, NewEvent(events.RELEASED, "the machine is gone")
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
            NewEvent(events.STATUS_EVENTS[Status.RUNNING], "", {}, it.status.value, Status.RUNNING.value)
        ]
        if it.health_check is None:
            now = self.clock.now()
            running = replace(running, ready_at=it.ready_at or now, usable_at=_usable_at(it, now))
            new_events += [NewEvent(events.READY, "usable"), *_taken_over(it)]
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
                new_event = NewEvent(events.READY, ready.reason, {}, it.status.value, Status.READY.value)
                return await self._save(leased, ready, new_event, *_taken_over(it))
            case HealthStatus.FAILED:
                leased = replace(leased, instance=replace(it, health=health))
                reason = f"the application did not answer as it should: {explain_health(health)}"
                return await self._fail(leased, "HEALTH_CHECK_FAILED", reason)
            case _:
                reason = f"waiting for the application: {explain_health(health)}"
                return await self._save(leased, replace(it, health=health, reason=reason, waiting_for=None))

    async def _become(self, leased: LeasedInstance, step: steps.Become) -> LeasedInstance:
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
        new_event = NewEvent(events.STATUS_EVENTS[status], changed.reason, {}, it.status.value, status.value)
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
        new_events = [NewEvent(events.FAILED, reason, story, *change)]
        if code in _TIMEOUTS:
            new_events.insert(0, NewEvent(events.TIMEOUT, reason, story))
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
    """Tell whether an instance ends that has never had a machine, as far as is known."""
    ends = isinstance(step, steps.Fail) or step == steps.Become(Status.DELETED)
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
    return (NewEvent(events.REPLACED, f"takes over from {old}", {"replaces": old}),)


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
