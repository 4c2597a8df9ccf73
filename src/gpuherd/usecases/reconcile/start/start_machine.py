"""Starts a machine: asks for it, waits where others have its GPUs, and lets go of what comes to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.contract.codec.values import iso
from gpuherd.domain.errors import CloudError, OutOfStock
from gpuherd.domain.fast_replace import replace
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
            if pause > timedelta(0):
                return leased, RequeueAfter(pause)
        leased, error = await self.request.send(leased, self.cloud.start_machine)
        if isinstance(error, OutOfStock):
            if (left := self._time_left_to_wait(leased.instance)) > timedelta(0):
                return await self._wait_for_gpus(leased, error, left)
            # It holds the user's data: it stays as it is, exited, and can be started later.
            return await self._refused(leased, error), None
        if wait is not None and wait.refusals and error is None:
            granted = replace(
                leased.instance, reason="the cloud has GPUs for it", waiting_for=None, start_wait=None
            )
            leased = await self._save(leased, granted, NewEvent(events.GRANTED, granted.reason))
        return self.request.look_for_effect(leased, error)

    def _time_left_to_wait(self, it: Instance) -> timedelta:
        """Return how long a start may go on waiting for capacity: a span of time, whatever the clock does."""
        if it.start_wait is None or it.operation is None:
            return timedelta(0)
        since = it.operation.requested_at
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

    async def _refused(self, leased: LeasedInstance, error: CloudError) -> LeasedInstance:
        it = leased.instance
        failure = Failure(error.code, error.message, self.clock.now())
        exited = replace(
            it,
            goal=Goal.STOPPED,
            status=Status.EXITED,
            reason=error.message,
            waiting_for=None,
            start_wait=None,
            last_error=failure,
        )
        new_event = NewEvent(
            events.START_REFUSED, error.message, {"code": error.code}, it.status.value, Status.EXITED.value
        )
        back = NewEvent(events.STATUS_EVENTS[Status.EXITED], error.message)
        return await self._save(leased, exited, new_event, back)

    async def _save(
        self, leased: LeasedInstance, instance: Instance, *new_events: NewEvent
    ) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance, *new_events))
