"""Spot machines: the cloud gives notice, and takes them back.

Novita says it in two places, and which of them it uses when is not documented: so either is believed, but
only together with the phase of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuherd.domain.cloud.machine import Machine, Phase

# `reclaimed` is in no document, but has been seen.
RECLAIM_SPOT_STATUSES = frozenset({"notified", "reclaiming", "terminated", "reclaimed"})


# Novita promises so much time between the notice and the loss.
RECLAIM_NOTICE = timedelta(hours=1)


@dataclass(frozen=True)
class ReclaimNotice:
    """The cloud has said that it will take a machine back."""

    # When a list first showed it.
    seen_at: datetime
    # When the cloud says that it happens; Novita does not say it before the reclaim has begun.
    reclaim_at: datetime | None
    # When to be gone from it: what the cloud says, else what it promises.
    loss_expected_at: datetime


def read_notice(reclaim_at: datetime | None, seen_at: datetime, promised: timedelta) -> ReclaimNotice:
    """Return a notice that was first seen at that moment, with the time that the cloud says by now."""
    return ReclaimNotice(seen_at, reclaim_at, seen_at + promised if reclaim_at is None else reclaim_at)


def is_reclaim_withdrawn(machine: Machine | None) -> bool:
    """Tell whether a machine runs and nothing is said of a reclaim; it means something after a notice."""
    return machine is not None and machine.phase is Phase.RUNNING and not _is_marked(machine)


def is_reclaim_announced(machine: Machine | None) -> bool:
    """Tell whether a machine that still runs is about to be taken back."""
    return machine is not None and machine.phase is Phase.RUNNING and _is_marked(machine)


def was_reclaimed(machine: Machine | None) -> bool:
    """Tell whether a machine stopped because the cloud took it back, and not on request."""
    return machine is not None and machine.phase is Phase.STOPPED and _is_marked(machine)


def _is_marked(machine: Machine) -> bool:
    return machine.spot_reclaim_at is not None or machine.spot_status in RECLAIM_SPOT_STATUSES
