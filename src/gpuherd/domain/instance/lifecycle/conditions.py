"""Conditions: what holds of an instance, whatever the cloud shows at the moment."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.tag import owner_tag, parse_tag
from gpuherd.domain.instance.attempt import Attempt
from gpuherd.domain.instance.health import Health, HealthStatus
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Goal, Instance, OnFailure, Status
from gpuherd.domain.instance.operation import BRINGING_UP, OperationKind

VANISHED = "INSTANCE_VANISHED"
# The last round of a health check may end so long after the time of the check.
HEALTH_VERDICT_WITHIN = timedelta(minutes=1)


def has_other_ports(instance: Instance, machine: Machine) -> bool:
    shown = machine.ports
    # Novita's documents show lists without endpoints; what is not there cannot differ.
    return bool(shown) and all(port.endpoint for port in shown) and set(shown) != set(instance.ports)


def awaits_health(instance: Instance) -> bool:
    """Tell whether the application is being asked whether it is up."""
    return instance.goal is Goal.RUNNING and instance.status is Status.HEALTH_CHECKING


def health_begun_at(instance: Instance) -> datetime | None:
    """Return since when the application is asked, or could be; None where it is not waited for."""
    if instance.health_check is None or instance.status not in (Status.RUNNING, Status.HEALTH_CHECKING):
        return None
    return (instance.health and instance.health.started_at) or instance.started_at


def health_over_at(instance: Instance) -> datetime | None:
    """Return when its health check has surely said what it found; None where it is not waited for."""
    begun, check = health_begun_at(instance), instance.health_check
    if begun is None or check is None:
        return None
    return begun + timedelta(milliseconds=check.max_wait_ms) + HEALTH_VERDICT_WITHIN


def given_up_at(instance: Instance) -> datetime:
    """Return when it is given up if it cannot be used; a check that was asked for has all of its time."""
    return max(instance.deadline, health_over_at(instance) or instance.deadline)


def is_coming_up(instance: Instance) -> bool:
    """Tell whether it is waited for, so that a deadline runs."""
    resting = instance.usable or instance.status in (*TERMINAL_STATUSES, Status.EXITED, Status.MIGRATING)
    return instance.goal is Goal.RUNNING and not resting and not was_started_externally(instance)


def settled_health(instance: Instance, now: datetime) -> Health | None:
    """Return what its health check has found, as over where nobody goes on with it."""
    health = instance.health
    if instance.status is Status.FAILED and instance.health_check is not None:
        health = health or Health()
    elif health is None or health.status is HealthStatus.PENDING or awaits_health(instance):
        return health
    return health if health is None or health.ended else health.given_up(now)


def is_starting_again(instance: Instance) -> bool:
    """Tell whether this is a start or restart of what was up, and not the first boot."""
    operation = instance.operation
    return operation is not None and operation.is_running and operation.kind in BRINGING_UP


def start_waits_until(instance: Instance) -> datetime:
    """Return until when a start may wait for capacity."""
    begun = instance.created_at if instance.operation is None else instance.operation.requested_at
    return begun + timedelta(seconds=instance.start_wait.seconds if instance.start_wait else 0)


def is_restarting(instance: Instance) -> bool:
    """Tell whether a restart is under way that has not led to a new run yet."""
    operation = instance.operation
    under_way = operation is not None and operation.is_running and operation.kind is OperationKind.RESTART
    return under_way and instance.status is Status.STARTING


def was_started_externally(instance: Instance) -> bool:
    """Tell whether what comes up again was started or moved past us: the deadline is of an earlier boot."""
    came_up_once = instance.stopped_at or (instance.ready_at and instance.cloud_id)
    return bool(came_up_once) and not is_starting_again(instance)


def must_release(instance: Instance) -> bool:
    """Tell whether a failed instance gives its machine back: only one that was never of use to anybody."""
    first_boot = instance.stopped_at is None and not is_starting_again(instance)
    return instance.on_failure is OnFailure.DELETE and not instance.ready_at and first_boot


def wants_machine(it: Instance) -> bool:
    """Tell whether an instance has no machine, and is to rent one."""
    return it.cloud_id is None and it.goal is Goal.RUNNING and it.status not in TERMINAL_STATUSES


def has_given_up_machine(it: Instance) -> bool:
    """Tell whether an instance does not count on its machine any more."""
    # Only what was proven to be gone ends its release; a machine that shall be kept was never released.
    released = it.status is Status.FAILED and must_release(it) and not it.releasing
    return it.status is Status.DELETED or released


def keeps_machine(it: Instance) -> bool:
    """Tell whether an instance has failed and its machine was not given back, so that it may cost money."""
    return it.status is Status.FAILED and it.cloud_id is not None and not was_machine_proven_gone(it)


def was_machine_proven_gone(it: Instance) -> bool:
    """Tell whether the machine of an instance was proven to be gone, so that its id may be another one's."""
    vanished = it.last_error is not None and it.last_error.code == VANISHED
    return has_given_up_machine(it) or (it.status is Status.FAILED and vanished and not it.releasing)


def is_machine_of_other_call(machine: Machine, it: Instance, bound: Attempt) -> bool:
    """Tell whether the cloud has given the id of an instance's machine to one of another call of ours.

    Its tag is of this installation and not of the call that made the instance's own. Where its environment
    says the same as its name, that is all: people rename machines, but not what is inside. Else it must have
    been made later, by the cloud's clock: one that was only renamed keeps its age. Where the cloud has not
    told when the first was made, it was made before it was bound, by our clock: as the tag has to be another,
    too, clocks get no allowance.
    """
    ours, shown = parse_tag(f"--{bound.tag}"), owner_tag(machine)
    if ours is None or shown is None or bound.tag in (str(shown), machine.env_tag):
        return False
    if shown.installation != ours.installation:
        return False
    # guard: whose name and environment agree is of that call, whatever the clocks say
    return machine.env_tag == str(parse_tag(machine.name)) or was_made_later(machine, it, bound)


def was_made_later(machine: Machine, it: Instance, bound: Attempt) -> bool:
    """Tell whether a machine was made after the one that an instance has, by the cloud's clock."""
    # guard: the cloud's own clock decides which machine of an id is the later
    made_by = it.machine_made_at or bound.closed_at
    # guard: a machine of another name and the same age is ours, renamed
    return made_by is not None and machine.created_at is not None and machine.created_at > made_by


def is_overdue(instance: Instance, now: datetime, patience: timedelta) -> bool:
    """Tell whether the cloud was not asked yet, or so long ago that it must be asked again."""
    # Both ways: after a wall clock that stepped back, the last request seems to lie in the future.
    return instance.asked_at is None or abs(now - instance.asked_at) >= patience
