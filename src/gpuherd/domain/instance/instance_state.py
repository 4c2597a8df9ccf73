"""Predicates and deadlines of an instance, and when it needs its next pass."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.instance import goal_rules, scheduled_end
from gpuherd.domain.instance.health import Health, HealthStatus
from gpuherd.domain.instance.instance import (
    TERMINAL_STATUSES,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.operation import BRINGING_UP, OperationKind
from gpuherd.domain.instance.rent_attempt import Attempt, owner_tag, parse_tag
from gpuherd.domain.instance.scheduled_end import (
    Ending,
    Situation,
    ending,
    next_due,
    silent_at,
)

VANISHED = "INSTANCE_VANISHED"


# The last round of a health check may end this long after the time of the check.
HEALTH_VERDICT_WITHIN = timedelta(minutes=1)


def has_other_ports(instance: Instance, machine: Machine) -> bool:
    shown = machine.ports
    # Novita's documents show lists without endpoints. A missing value cannot differ.
    return bool(shown) and all(port.endpoint for port in shown) and set(shown) != set(instance.ports)


def awaits_health(instance: Instance) -> bool:
    """Return True if a health check is running."""
    return instance.goal is Goal.RUNNING and instance.status is Status.HEALTH_CHECKING


def health_begun_at(instance: Instance) -> datetime | None:
    """Return when the health check began, or could have begun; None if it does not count."""
    if instance.health_check is None or instance.status not in (Status.RUNNING, Status.HEALTH_CHECKING):
        return None
    return (instance.health and instance.health.started_at) or instance.started_at


def health_over_at(instance: Instance) -> datetime | None:
    """Return when the health check has certainly ended; None if it does not count."""
    begun, check = health_begun_at(instance), instance.health_check
    if begun is None or check is None:
        return None
    return begun + timedelta(milliseconds=check.max_wait_ms) + HEALTH_VERDICT_WITHIN


def given_up_at(instance: Instance) -> datetime:
    """Return when an unusable instance is given up. A health check always gets its whole time."""
    return max(instance.deadline, health_over_at(instance) or instance.deadline)


def is_coming_up(instance: Instance) -> bool:
    """Return True if the instance is on its way up, so that a deadline runs."""
    resting = instance.usable or instance.status in (*TERMINAL_STATUSES, Status.EXITED, Status.MIGRATING)
    return instance.goal is Goal.RUNNING and not resting and not was_started_externally(instance)


def settled_health(instance: Instance, now: datetime) -> Health | None:
    """Return the result of the health check, as ended if it does not continue."""
    health = instance.health
    if instance.status is Status.FAILED and instance.health_check is not None:
        health = health or Health()
    elif health is None or health.status is HealthStatus.PENDING or awaits_health(instance):
        return health
    return health if health is None or health.ended else health.given_up(now)


def is_starting_again(instance: Instance) -> bool:
    """Return True for a start or restart after an earlier run, not for the first boot."""
    operation = instance.operation
    return operation is not None and operation.is_running and operation.kind in BRINGING_UP


def start_waits_until(instance: Instance) -> datetime:
    """Return until when a start may wait for capacity."""
    begun = instance.created_at if instance.operation is None else instance.operation.requested_at
    return begun + timedelta(seconds=instance.start_wait.seconds if instance.start_wait else 0)


def is_restarting(instance: Instance) -> bool:
    """Return True if a restart is under way that has not led to a new run yet."""
    operation = instance.operation
    under_way = operation is not None and operation.is_running and operation.kind is OperationKind.RESTART
    return under_way and instance.status is Status.STARTING


def was_started_externally(instance: Instance) -> bool:
    """Return True if the machine was started or moved outside gpuherd. The deadline is of an earlier boot."""
    came_up_once = instance.stopped_at or (instance.ready_at and instance.cloud_id)
    return bool(came_up_once) and not is_starting_again(instance)


def must_release(instance: Instance) -> bool:
    """Return True if a failed instance removes its machine: only if it was never usable."""
    first_boot = instance.stopped_at is None and not is_starting_again(instance)
    return instance.on_failure is OnFailure.DELETE and not instance.ready_at and first_boot


def wants_machine(instance: Instance) -> bool:
    """Return True if an instance has no machine and must rent one."""
    return (
        instance.cloud_id is None
        and instance.goal is Goal.RUNNING
        and instance.status not in TERMINAL_STATUSES
    )


def has_given_up_machine(instance: Instance) -> bool:
    """Return True if an instance no longer relies on its machine."""
    # Only a proof that the machine is gone ends a release. A machine that is kept was never released.
    released = instance.status is Status.FAILED and must_release(instance) and not instance.releasing
    return instance.status is Status.DELETED or released


def keeps_machine(instance: Instance) -> bool:
    """Return True if a failed instance still has its machine, which may cost money."""
    return (
        instance.status is Status.FAILED
        and instance.cloud_id is not None
        and not was_machine_proven_gone(instance)
    )


def was_machine_proven_gone(instance: Instance) -> bool:
    """Return True if the machine of an instance is proven to be gone."""
    vanished = instance.last_error is not None and instance.last_error.code == VANISHED
    return has_given_up_machine(instance) or (
        instance.status is Status.FAILED and vanished and not instance.releasing
    )


def is_machine_of_other_call(machine: Machine, instance: Instance, bound: Attempt) -> bool:
    """Return True if the cloud gave the id of an instance's machine to a machine of another call.

    The tag is from this installation, but not of the call that made the instance's own machine. If the
    environment has the same tag as the name, that is enough: people rename machines but cannot change the
    environment. Otherwise the machine must be younger by the cloud's clock, because a renamed machine keeps
    its age. If the age of the first machine is unknown, it was made before it was bound, by our clock. The
    tag must differ too, so clocks get no allowance.
    """
    ours, shown = parse_tag(f"--{bound.tag}"), owner_tag(machine)
    if ours is None or shown is None or bound.tag in (str(shown), machine.env_tag):
        return False
    if shown.installation != ours.installation:
        return False
    # guard: whose name and environment agree is of that call, whatever the clocks say
    return machine.env_tag == str(parse_tag(machine.name)) or was_made_later(machine, instance, bound)


def was_made_later(machine: Machine, instance: Instance, bound: Attempt) -> bool:
    """Return True if a machine is younger than the instance's own, by the cloud's clock."""
    # guard: the cloud's own clock decides which machine of an id is the later
    made_by = instance.machine_made_at or bound.closed_at
    # guard: a machine of another name and the same age is ours, renamed
    return made_by is not None and machine.created_at is not None and machine.created_at > made_by


def is_overdue(instance: Instance, now: datetime, patience: timedelta) -> bool:
    """Return True if the cloud was not asked yet, or must be asked again after `patience`."""
    # abs(): if the wall clock stepped back, the last request seems to lie in the future.
    return instance.asked_at is None or abs(now - instance.asked_at) >= patience


DUE_RECHECK = timedelta(seconds=1)


def instance_ending(instance: Instance, now: datetime, up_since: datetime) -> Ending | None:
    """Return how an instance ends now because some time is over; None if it does not.

    `up_since` is since when this service could receive reports of use.
    """
    return ending(instance.terms, _situation(instance), now, up_since) if may_end(instance) else None


def due_at(instance: Instance) -> datetime | None:
    """Return when an instance needs its next pass, even if nothing changes."""
    if (
        instance.lease_term is None
        and instance.terms.silence is None
        and instance.status is not Status.EXITED
    ):
        # The common case: no time runs.
        return instance.look_at
    ends_at = next_due(instance.terms, _situation(instance)) if may_end(instance) else None
    return min(filter(None, (ends_at, instance.look_at)), default=None)


def wait_at_most(instance: Instance, delay: timedelta, now: datetime) -> timedelta:
    """Return the maximum wait, so that no end and no deadline is missed."""
    due, until = due_at(instance), given_up_at(instance)
    if due is not None:
        delay = min(delay, max(due - now, DUE_RECHECK))
    # A deadline in the past was already checked, without a result.
    return min(delay, until - now) if is_coming_up(instance) and until > now else delay


def silence_ends_at(instance: Instance) -> datetime | None:
    """Return when silence ends the instance, if no user reports use before."""
    return silent_at(instance.terms, _situation(instance)) if may_end(instance) else None


def auto_ends_at(instance: Instance) -> datetime | None:
    """Return when idleness ends the instance, as far as known, if nothing changes."""
    idle_ends_at = (
        None if use_look_at(instance) is None or instance.use_watch is None else instance.use_watch.ends_at
    )
    return min(filter(None, (silence_ends_at(instance), idle_ends_at)), default=None)


def last_used_at(instance: Instance) -> datetime | None:
    """Return when it was last used: as reported by its user, or as seen."""
    seen = None if instance.use_watch is None else instance.use_watch.busy_at
    return max(filter(None, (instance.used_at, seen)), default=None)


def use_look_at(instance: Instance) -> datetime | None:
    """Return when to check next whether it is idle; None if nothing depends on it."""
    if instance.goal is not Goal.RUNNING or instance.cloud_id is None or not may_end(instance):
        return None
    return scheduled_end.use_look_at(instance.terms, _situation(instance))


def usable_since(instance: Instance) -> datetime | None:
    """Return since when its present run is usable. Older versions stored only the first run."""
    # guard: silence counts from the present run
    return instance.usable_at or instance.ready_at


def may_end(instance: Instance) -> bool:
    """Return True if there is something left to end. An instance that is being deleted ends anyway."""
    if instance.goal is Goal.DELETED or instance.releasing or instance.status is Status.DELETED:
        return False
    if instance.status is Status.FAILED:
        # A kept machine still costs money.
        return instance.cloud_id is not None and not was_machine_proven_gone(instance)
    return True


def _situation(instance: Instance) -> Situation:
    exited = instance.status is Status.EXITED
    return Situation(
        term=instance.lease_term,
        can_stop=can_be_stopped(instance),
        is_stopping=instance.goal is Goal.STOPPED and not exited and instance.status is not Status.FAILED,
        stopped_since=instance.stopped_at if exited else None,
        data_warned=instance.data_expiry_told,
        usable_since=usable_since(instance) if instance.usable else None,
        used_at=instance.used_at,
        watch=instance.use_watch,
    )


def can_be_stopped(instance: Instance) -> bool:
    """Return True if the end can be a stop. A first boot cannot be stopped, and holds no data yet."""
    has_come_up = instance.ready_at is not None or instance.stopped_at is not None
    is_up = instance.status in (Status.RUNNING, Status.HEALTH_CHECKING)
    return goal_rules.can_stop(instance) and (has_come_up or is_up)


class WaitFor(StrEnum):
    """The state for which a long poll waits; `ready` means usable."""

    READY = "ready"
    EXITED = "exited"
    DELETED = "deleted"


def wait_result(instance: Instance, what: WaitFor) -> bool | None:
    """Return True if `what` is reached; False if it needs a new order; None otherwise."""
    match what:
        case WaitFor.READY:
            return True if instance.usable else _unless(_stays_unusable(instance))
        case WaitFor.EXITED:
            return True if instance.status is Status.EXITED else _unless(_is_leaving(instance))
        case WaitFor.DELETED:
            if instance.status is Status.DELETED:
                return True
            return _unless(instance.status is Status.FAILED and instance.goal is not Goal.DELETED)


def _unless(hopeless: bool) -> bool | None:
    return False if hopeless else None


def _is_leaving(instance: Instance) -> bool:
    return instance.goal is Goal.DELETED or instance.status in (
        Status.FAILED,
        Status.DELETING,
        Status.DELETED,
    )


def _stays_unusable(instance: Instance) -> bool:
    down = instance.status is Status.EXITED and not _is_being_started(instance)
    return down or instance.goal is Goal.STOPPED or _is_leaving(instance)


def _is_being_started(instance: Instance) -> bool:
    current = instance.operation
    return current is not None and current.is_running and current.kind in BRINGING_UP
