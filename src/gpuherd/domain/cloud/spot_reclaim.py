"""Spot machines: the cloud gives notice, and takes them back.

Novita says it in two places, and which of them it uses when is not documented: so either is believed, but
only together with the phase of the machine.
"""

from __future__ import annotations

from gpuherd.domain.cloud.machine import Machine, Phase

# `reclaimed` is in no document, but has been seen.
RECLAIM_SPOT_STATUSES = frozenset({"notified", "reclaiming", "terminated", "reclaimed"})


def is_reclaim_announced(machine: Machine | None) -> bool:
    """Tell whether a machine that still runs is about to be taken back."""
    return machine is not None and machine.phase is Phase.RUNNING and _is_marked(machine)


def was_reclaimed(machine: Machine | None) -> bool:
    """Tell whether a machine stopped because the cloud took it back, and not on request."""
    return machine is not None and machine.phase is Phase.STOPPED and _is_marked(machine)


def _is_marked(machine: Machine) -> bool:
    return machine.spot_reclaim_at is not None or machine.spot_status in RECLAIM_SPOT_STATUSES
