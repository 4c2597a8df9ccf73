"""Starts a machine: asks for it, waits where others have its GPUs, and lets go of what comes to nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.codec.values import iso
from gpuherd.domain.errors import OutOfStock
from gpuherd.domain.instance import events
from gpuherd.domain.instance.failure import Failure
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lifecycle.conditions import start_waits_until
from gpuherd.domain.instance.waiting import Waiting, WaitingFor
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.clock_steps import ClockStepDetector
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.reconcile.request_machine import RequestMachine
from gpuherd.usecases.reconcile.step_result import RequeueAfter, StepResult

log = structlog.get_logger()


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
            leased = await self._save(leased, granted, NewEvent(events.GRANTED, granted.reason))
        return self.request.look_for_effect(leased, error)

    async def abandon(self, leased: LeasedInstance, code: str, reason: str) -> LeasedInstance:
        """Give a start up whose time is over; should the machine come up all the same, it is followed."""
        it, now = leased.instance, self.clock.now()
        # Who has just wanted it up may want it still: its data is kept as long as if it had stopped now.
        leased = replace(leased, instance=replace(it, stopped_at=now))
        story = {"code": code, "start": True}
        told = (NewEvent(events.TIMEOUT, reason, story),) if code == "STARTUP_TIMEOUT" else ()
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
        ended = NewEvent(events.START_REFUSED, failure.message, details, it.status.value, status.value)
        back = NewEvent(events.STATUS_EVENTS[status], failure.message)
        return await self._save(leased, exited, *before, ended, back)

    async def _save(
        self, leased: LeasedInstance, instance: Instance, *new_events: NewEvent
    ) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance, *new_events))
