"""Adoption: the instance that takes over an existing machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.offer import BillingMode, DiskTariff, known_mode
from gpuherd.domain.cloud.orphan import LEAVING_PHASES, Orphan, OrphanOrder
from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance.instance import (
    Goal,
    Instance,
    Rental,
    Status,
)
from gpuherd.domain.instance.launch_spec import LaunchSpec, OnFailure
from gpuherd.domain.instance.rent_attempt import plain_name

NAME_MAX = 100


# These need a new instance even if the tag names them: a deleted instance stays deleted.
_ENDED_STATUSES = frozenset({Status.DELETING, Status.DELETED})


@dataclass(frozen=True)
class AdoptionTerms:
    """What an adoption needs besides the machine."""

    rental: Rental | None
    now: datetime
    max_wait: timedelta
    disk: DiskTariff


def check_adoptable(orphan: Orphan) -> None:
    """Reject a machine that is being removed."""
    leaving = orphan.order is OrphanOrder.DELETE and orphan.asked_at is not None
    if leaving or orphan.machine.phase in LEAVING_PHASES:
        raise Conflict(f"machine {orphan.cloud_id} is being removed", code="ORPHAN_LEAVING")


def can_rebind(instance: Instance, cloud_id: str) -> bool:
    """Return True if the instance named by a machine's tag may get that machine."""
    return instance.status not in _ENDED_STATUSES and instance.cloud_id in (None, cloud_id)


def new_instance(instance_id: str, machine: Machine, terms: AdoptionTerms) -> Instance:
    """Return a new instance for a machine."""
    mode = known_mode(machine.billing_mode) or BillingMode.ON_DEMAND
    blank = Instance(
        id=instance_id,
        name=_name(machine),
        wish=LaunchSpec(
            product_name=machine.product_name,
            template_id="",
            gpu_num=max(machine.gpu_num, 1),
            disk_gb=machine.disk_gb,
            regions=(machine.region,) if machine.region else (),
            billing_mode=mode,
        ),
        goal=Goal.RUNNING,
        status=Status.CREATING,
        created_at=terms.now,
        deadline=terms.now + terms.max_wait,
        estimated_ready_at=terms.now,
    )
    return with_machine(blank, machine, terms)


def with_machine(instance: Instance, machine: Machine, terms: AdoptionTerms) -> Instance:
    """Return the instance with its machine. Goal and status follow the state of the machine."""
    goal, status = _GOAL_AND_STATUS_BY_PHASE.get(machine.phase, (Goal.RUNNING, Status.STARTING))
    now, runs = terms.now, status is Status.RUNNING
    return replace(
        instance,
        goal=goal,
        status=status,
        reason=f"adopted while the cloud said {machine.raw_status or machine.phase.value!r}",
        waiting_for=None,
        cloud_id=machine.cloud_id,
        rental=terms.rental,
        disk_hourly_usd=terms.disk.hourly_usd(instance.wish.disk_gb),
        ports=machine.ports,
        connection=machine.connection,
        started_at=now if runs else instance.started_at,
        ready_at=(instance.ready_at or now) if runs and instance.health_check is None else None,
        stopped_at=now if status is Status.EXITED else None,
        deadline=now + terms.max_wait,
        # The machine existed before gpuherd and may hold data.
        on_failure=OnFailure.KEEP,
        health=None,
        releasing=False,
        asked_at=None,
        last_error=None,
        settled=False,
    )


_GOAL_AND_STATUS_BY_PHASE = {
    Phase.RUNNING: (Goal.RUNNING, Status.RUNNING),
    Phase.STOPPING: (Goal.STOPPED, Status.STOPPING),
    Phase.STOPPED: (Goal.STOPPED, Status.EXITED),
    Phase.FROZEN: (Goal.STOPPED, Status.EXITED),
}


def _name(machine: Machine) -> str:
    """Return the machine's own name as a valid instance name: without our tag, printable, not too long."""
    visible = "".join(char for char in plain_name(machine.name) if char.isprintable()).strip()
    return visible[:NAME_MAX].strip() or machine.cloud_id[:NAME_MAX]
