"""Asks the cloud to do something with a machine: written down before, sent once and in time or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import (
    CloudError,
    CloudRefused,
    CloudUnavailable,
    MachineGone,
    OutcomeUnknown,
    OutOfStock,
)
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.instances import InstanceLeases, LeasedInstance
from gpuherd.usecases.events.record import EventRecorder
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline
from gpuherd.usecases.reconcile.step_result import RECHECK_SOON, RequeueAfter, StepResult

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
