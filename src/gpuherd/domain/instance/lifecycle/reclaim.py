"""A reclaim: the cloud announces that it takes a spot machine back, says when, or says that it does not."""

from __future__ import annotations

from gpuherd.domain.cloud.spot_reclaim import is_reclaim_announced, is_reclaim_withdrawn
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.lifecycle.steps import (
    AnnounceReclaim,
    FollowReclaim,
    Observation,
    Step,
    WithdrawReclaim,
)


def reclaim_step(instance: Instance, observation: Observation) -> Step | None:
    """Follow what the lists say about a reclaim for as long as they do; None: nothing new."""
    machine, known = observation.machine, instance.reclaim
    if machine is None or instance.status is Status.EXITED:
        return None
    if known is not None and is_reclaim_withdrawn(machine):
        return WithdrawReclaim()
    if not is_reclaim_announced(machine):
        return None
    if known is None:
        return AnnounceReclaim()
    # The time need not come with the notice, and may change.
    at = machine.spot_reclaim_at
    return None if known.reclaim_at == at else FollowReclaim(at)
