"""Restarts a machine: asks once, looks for the effect, and ends the operation where there surely is none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import CloudRefused, MachineGone, OutOfStock
from gpuherd.domain.instance import events
from gpuherd.domain.instance.failure import Failure
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lifecycle.restart import shows_restart
from gpuherd.domain.instance.operation import OperationPhase
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.events.record import EventRecorder, NewEvent
from gpuherd.usecases.reconcile.request_machine import RequestMachine
from gpuherd.usecases.reconcile.step_result import RECHECK_SOON, RequeueAfter, StepResult

log = structlog.get_logger()

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
        new_event = NewEvent(events.RESTART_FAILED, reason, {"code": code})
        log.warning("instance.restart_failed", instance_id=it.id, code=code, reason=reason)
        change = self.event_recorder.change(as_it_is, new_event)
        return await self.instance_leases.save(leased, replace(change, operations=(ended,)))

    async def _save(self, leased: LeasedInstance, instance: Instance) -> LeasedInstance:
        return await self.instance_leases.save(leased, self.event_recorder.change(instance))
