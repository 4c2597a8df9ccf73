"""Start, restart, stop and delete the machine of an instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from gpuherd.contract.wire_models import iso
from gpuherd.domain.errors import (
    CloudError,
    CloudRefused,
    CloudUnavailable,
    MachineGone,
    OutcomeUnknown,
    OutOfStock,
)
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import (
    Goal,
    Instance,
    Status,
    Waiting,
    WaitingFor,
)
from gpuherd.domain.instance.instance_state import start_waits_until
from gpuherd.domain.instance.next_step import shows_restart
from gpuherd.domain.instance.operation import Failure, OperationPhase
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.instance_port import InstanceLeases, LeasedInstance
from gpuherd.usecases.events.record_event import EventRecorder, NewEvent
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.reconcile.reconcile_context import RECHECK_SOON, RequeueAfter, StepResult
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline

log = structlog.get_logger()


@dataclass(frozen=True)
class RequestMachine:
    """Start, restart, stop and delete go out here."""

    instance_leases: InstanceLeases
    event_recorder: EventRecorder
    clock: Clock

    async def __call__(
        self, leased: LeasedInstance, call: Callable[[str, float], Awaitable[None]]
    ) -> StepResult:
        """Ask the cloud once; what comes of it is for the lists to show, not for the reply to tell."""
        return self.look_for_effect(*await self.send(leased, call))

    def look_for_effect(self, leased: LeasedInstance, error: CloudError | None) -> StepResult:
        """Return that the next look is to show whether something has come of it."""
        if error is not None:
            # Novita has refused starts that went through all the same: look, and ask again if nothing moves.
            log.info(
                "machine.request_not_confirmed",
                instance_id=leased.instance.id,
                code=error.code,
                reason=error.message,
            )
        return leased, RequeueAfter(RECHECK_SOON)

    async def send(
        self, leased: LeasedInstance, call: Callable[[str, float], Awaitable[None]]
    ) -> tuple[LeasedInstance, CloudError | None]:
        """Write down that the cloud is asked, ask it, and return what it said that is not a yes."""
        it, decided_s = leased.instance, self.clock.boottime()
        leased = await self._save(leased, replace(it, asked_at=self.clock.now()))
        try:
            # guard: a removal is made promptly or not at all
            check_send_deadline(self.clock, decided_s)
            await call(it.cloud_id or "", decided_s + SEND_WITHIN_S)
        except CloudUnavailable:
            await self._save(leased, replace(leased.instance, asked_at=None))
            raise
        except (OutcomeUnknown, MachineGone, OutOfStock, CloudRefused) as error:
            # With what was read before: whoever has changed the goal meanwhile must not be overruled by it.
            return leased, error
        return leased, None

    async def _save(self, leased: LeasedInstance, instance: Instance) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance))


@dataclass(frozen=True)
class StartMachine:
    """One start, from the call to where the machine moves or surely will not."""

    instance_leases: InstanceLeases
    cloud: Cloud
    event_recorder: EventRecorder
    request: RequestMachine
    clock: Clock
    clock_steps: ClockStepDetector

    async def ask(self, leased: LeasedInstance) -> StepResult:
        """Ask the cloud, now or when its next try is due."""
        wait, now = leased.instance.start_wait, self.clock.now()
        if wait is not None:
            pause = min(wait.next_try_at(now) - now, self._time_left_to_wait(leased.instance))
            # guard: a start that waits is not asked for at every pass
            if pause > timedelta(0):
                return leased, RequeueAfter(pause)
        leased, error = await self.request.send(leased, self.cloud.start_machine)
        if isinstance(error, OutOfStock):
            # guard: a start that is refused does not put aside a goal that came meanwhile
            if (left := self._time_left_to_wait(leased.instance)) > timedelta(0):
                return await self._wait_for_gpus(leased, error, left)
            # It holds the user's data: it stays as it is, exited, and can be started later.
            failure = Failure(error.code, error.message, self.clock.now())
            return await self._exited(leased, failure), None
        if wait is not None and wait.refusals and error is None:
            granted = replace(
                leased.instance, reason="the cloud has GPUs for it", waiting_for=None, start_wait=None
            )
            leased = await self._save(leased, granted, NewEvent(instance_event.GRANTED, granted.reason))
        return self.request.look_for_effect(leased, error)

    async def abandon(self, leased: LeasedInstance, code: str, reason: str) -> LeasedInstance:
        """Give a start up whose time is over; should the machine come up all the same, it is followed."""
        it, now = leased.instance, self.clock.now()
        # Who has just wanted it up may want it still: its data is kept as long as if it had stopped now.
        leased = replace(leased, instance=replace(it, stopped_at=now))
        story = {"code": code, "start": True}
        told = (NewEvent(instance_event.TIMEOUT, reason, story),) if code == "STARTUP_TIMEOUT" else ()
        log.warning("instance.start_abandoned", instance_id=it.id, code=code, reason=reason)
        return await self._exited(leased, Failure(code, reason, now), *told)

    def _time_left_to_wait(self, it: Instance) -> timedelta:
        """Return how long a start may go on waiting for capacity: a span of time, whatever the clock does."""
        if it.start_wait is None or it.operation is None:
            return timedelta(0)
        since = it.operation.requested_at
        # guard: a clock that is set ahead ends no wait of a start
        return start_waits_until(it) + self.clock_steps.ahead_since(since) - self.clock.now()

    async def _wait_for_gpus(self, leased: LeasedInstance, error: OutOfStock, left: timedelta) -> StepResult:
        """Let a start that was refused for lack of stock wait for its next try."""
        it, now = leased.instance, self.clock.now()
        assert it.start_wait is not None, "only who may wait does"
        wait = it.start_wait.refused(error.message, now)
        # It was surely not started, so it may be asked for again.
        leased = await self._save(leased, replace(it, start_wait=wait, asked_at=None))
        until = iso(now + left)
        return leased, RequeueAfter(
            min(wait.next_try_at(now) - now, left),
            f"waiting for capacity until {until}: {error.message}",
            Waiting(WaitingFor.CAPACITY, error.message, now),
            {"for": WaitingFor.CAPACITY.value, "code": error.code, "until": until},
        )

    async def _exited(self, leased: LeasedInstance, failure: Failure, *before: NewEvent) -> LeasedInstance:
        """Say that nothing came of the start: the machine stands still, and can be started again."""
        it, status = leased.instance, Status.EXITED
        exited = replace(
            it,
            goal=Goal.STOPPED,
            status=status,
            reason=failure.message,
            waiting_for=None,
            start_wait=None,
            last_error=failure,
        )
        details = {"code": failure.code}
        ended = NewEvent(
            instance_event.START_REFUSED, failure.message, details, it.status.value, status.value
        )
        back = NewEvent(instance_event.STATUS_EVENTS[status], failure.message)
        return await self._save(leased, exited, *before, ended, back)

    async def _save(
        self, leased: LeasedInstance, instance: Instance, *new_events: NewEvent
    ) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance, *new_events))


# A restart takes ten seconds or so: this often is enough to see it.
RESTART_RECHECK = timedelta(seconds=3)


@dataclass(frozen=True)
class RestartMachine:
    """One restart, from the call to its effect."""

    instance_leases: InstanceLeases
    cloud: Cloud
    event_recorder: EventRecorder
    request: RequestMachine
    clock: Clock

    async def ask(self, leased: LeasedInstance) -> StepResult:
        """Ask the cloud, once."""
        leased, error = await self.request.send(leased, self.cloud.restart_machine)
        if isinstance(error, OutOfStock | CloudRefused):
            reason = f"the cloud refused the restart: {error.message}"
            return await self.abandon(leased, error.code, reason), None
        operation = leased.instance.operation
        if error is None and operation is not None:
            accepted = operation.reached(OperationPhase.RESTARTING, self.clock.now())
            leased = await self._save(leased, replace(leased.instance, operation=accepted))
        return leased, RequeueAfter(RECHECK_SOON)

    async def look_for_effect(self, leased: LeasedInstance) -> StepResult:
        """Ask for this one machine, to see whether the restart has taken effect."""
        try:
            machine = await self.cloud.get_machine(leased.instance.cloud_id or "")
        except MachineGone:
            return leased, RequeueAfter(RESTART_RECHECK)
        if shows_restart(leased.instance, machine):
            return await self.confirm(leased), None
        return leased, RequeueAfter(RESTART_RECHECK)

    async def confirm(self, leased: LeasedInstance) -> LeasedInstance:
        """Say that the restart has taken effect."""
        it, now = leased.instance, self.clock.now()
        assert it.operation is not None, "every restart is an operation"
        seen = it.operation.reached(OperationPhase.RESTARTING, now).reached(OperationPhase.STARTING, now)
        return await self._save(leased, replace(it, operation=seen, reason="the machine restarts"))

    async def abandon(self, leased: LeasedInstance, code: str, reason: str) -> LeasedInstance:
        """Say that the restart has failed, or may have; the machine is looked at anew as it is."""
        it = leased.instance
        assert it.operation is not None, "every restart is an operation"
        ended = it.operation.failed(Failure(code, reason, self.clock.now()))
        as_it_is = replace(it, operation=ended, reason=reason, waiting_for=None, asked_at=None)
        new_event = NewEvent(instance_event.RESTART_FAILED, reason, {"code": code})
        log.warning("instance.restart_failed", instance_id=it.id, code=code, reason=reason)
        change = self.event_recorder.change(as_it_is, new_event)
        return await self.instance_leases.save(leased, replace(change, operations=(ended,)))

    async def _save(self, leased: LeasedInstance, instance: Instance) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance))
