"""Compares our record of an instance with what the cloud shows of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuherd.domain.cloud.machine import BOOTING, Machine, Phase
from gpuherd.domain.instance.instance import (
    TERMINAL_STATUSES,
    USABLE_STATUSES,
    Instance,
    Status,
)


class Consistency(StrEnum):
    """Which side is newer. The API shows these words."""

    CONSISTENT = "consistent"
    # We have ordered or know something that the cloud does not show yet.
    LOCAL_NEWER = "local-newer"
    # The cloud shows something that our record does not have yet.
    NOVITA_NEWER = "novita-newer"
    # The two contradict each other, and waiting does not help.
    CONFLICTED = "conflicted"


@dataclass(frozen=True)
class ConsistencyVerdict:
    """The verdict, and a sentence for people."""

    consistency: Consistency
    reason: str


# The first status is the default name of a phase.
STATUSES_BY_PHASE = {
    Phase.CREATING: (Status.CREATING,),
    Phase.PULLING: (Status.STARTING,),
    Phase.STARTING: (Status.STARTING,),
    Phase.RUNNING: (Status.RUNNING, Status.HEALTH_CHECKING, Status.READY),
    Phase.STOPPING: (Status.STOPPING,),
    Phase.STOPPED: (Status.EXITED,),
    Phase.FROZEN: (Status.EXITED,),
    Phase.MIGRATING: (Status.MIGRATING,),
    Phase.REMOVING: (Status.DELETING,),
    Phase.ABSENT: (Status.DELETED,),
}


DOWN_PHASES = (Phase.STOPPED, Phase.FROZEN)


def cloud_status(machine: Machine, known: Status | None = None) -> Status | None:
    """Return the cloud's state as a status.

    Return `known` if it agrees, or if the cloud's word is unknown.
    """
    same = STATUSES_BY_PHASE.get(machine.phase)
    if same is None:
        return known
    return known if known in same else same[0]


def judge_with_machine(instance: Instance, machine: Machine) -> ConsistencyVerdict:
    """Compare an instance with its machine."""
    same = STATUSES_BY_PHASE.get(machine.phase)
    says = machine.raw_status or machine.phase.value
    if same is None:
        return ConsistencyVerdict(
            Consistency.CONFLICTED, f"the cloud says {says!r}, a word that gpuherd does not know"
        )
    if instance.status in same:
        return ConsistencyVerdict(Consistency.CONSISTENT, "both say the same")
    if order := _pending_order(instance, machine.phase):
        return ConsistencyVerdict(Consistency.LOCAL_NEWER, f"{order}; the cloud still says {says!r}")
    if instance.releasing:
        return ConsistencyVerdict(Consistency.CONSISTENT, "the machine is being given back")
    if instance.status in TERMINAL_STATUSES:
        return ConsistencyVerdict(
            Consistency.CONFLICTED, f"{instance.status} here, but the cloud says {says!r}"
        )
    if instance.status in USABLE_STATUSES and machine.phase in BOOTING:
        return ConsistencyVerdict(Consistency.CONFLICTED, f"was usable already, but the cloud says {says!r}")
    return ConsistencyVerdict(
        Consistency.NOVITA_NEWER, f"{instance.status} here, while the cloud says {says!r}"
    )


def judge_without_machine(instance: Instance, *, awaited: bool, list_complete: bool) -> ConsistencyVerdict:
    """Judge an instance whose machine is not in the list.

    `awaited`: a create call of it has no outcome yet.
    """
    if awaited:
        reason = "a create call has no clear answer yet, and the cloud shows no machine of it"
        return ConsistencyVerdict(Consistency.LOCAL_NEWER, reason)
    if instance.cloud_id is None:
        return ConsistencyVerdict(Consistency.CONSISTENT, "no machine is rented")
    if not list_complete:
        return ConsistencyVerdict(
            Consistency.LOCAL_NEWER, "the cloud's list was incomplete and did not show the machine"
        )
    if instance.status in TERMINAL_STATUSES or instance.status is Status.DELETING:
        return ConsistencyVerdict(Consistency.CONSISTENT, "the cloud does not list the machine any more")
    if instance.status is Status.CREATING:
        return ConsistencyVerdict(Consistency.LOCAL_NEWER, "the cloud does not list the new machine yet")
    reason = "the cloud does not list the machine; one list alone does not prove that it is gone"
    return ConsistencyVerdict(Consistency.CONFLICTED, reason)


def _pending_order(instance: Instance, phase: Phase) -> str:
    """Return what we asked of the cloud and cannot see yet; empty if nothing."""
    if instance.releasing or instance.status is Status.DELETING:
        return "" if phase in (Phase.REMOVING, Phase.ABSENT) else "asked to be removed"
    if instance.status is Status.STOPPING:
        return "" if phase in DOWN_PHASES else "asked to stop"
    # Only a machine that ran before is asked to start. A new machine boots by itself.
    restarted = instance.status is Status.STARTING and instance.stopped_at is not None
    return "asked to start" if restarted and phase in (*DOWN_PHASES, Phase.STOPPING) else ""
