"""A restart: asked for once, and looked for until its effect shows or surely would have."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.domain.cloud.machine import BOOTING, Machine, Phase
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lifecycle.conditions import has_other_ports, is_overdue, is_restarting
from gpuherd.domain.instance.lifecycle.steps import (
    AbandonRestart,
    ConfirmRestart,
    LookForRestart,
    Observation,
    Restart,
    Step,
)
from gpuherd.domain.instance.operation import OperationPhase

# So long a restart is looked for. One without an answer is not repeated: it may have taken effect, and a
# second one would interrupt the application once more.
RESTART_SEEN_WITHIN = timedelta(seconds=60)


def restart_step(instance: Instance, observation: Observation, now: datetime) -> Step | None:
    """Ask for a restart once, and look for its effect; None where there is none to be asked or looked for."""
    operation = instance.operation
    if operation is None or not is_restarting(instance) or operation.has_reached(OperationPhase.STARTING):
        return None
    if observation.phase in (Phase.STOPPED, Phase.REMOVING, Phase.ABSENT):
        # What has stopped meanwhile is started; what has gone cannot be.
        return None
    if instance.asked_at is None:
        if now >= instance.deadline:
            return AbandonRestart("NETWORK_ERROR", "the cloud could not be asked for the restart in time")
        return Restart() if observation.phase is Phase.RUNNING else None
    is_newer = observation.changed_at is None or observation.changed_at > instance.asked_at
    if observation.machine is not None and is_newer and shows_restart(instance, observation.machine):
        return ConfirmRestart()
    # guard: a restart without an answer is not repeated
    if not is_overdue(instance, now, RESTART_SEEN_WITHIN):
        return LookForRestart()
    if operation.has_reached(OperationPhase.RESTARTING):
        # The cloud has said yes; it was too quick to be seen.
        return ConfirmRestart()
    return AbandonRestart(
        "OUTCOME_UNKNOWN",
        "the restart got no answer, and the machine shows no sign of one; it was not asked for again",
    )


def shows_restart(instance: Instance, machine: Machine) -> bool:
    """Tell whether a machine that ran, and was asked to restart, shows that it does or did."""
    if machine.phase is Phase.RUNNING:
        return has_other_ports(instance, machine)
    return machine.phase in BOOTING or machine.phase in (Phase.STOPPING, Phase.STOPPED)
