"""Decide the one step that brings an instance closer to its goal."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.domain.cloud.machine import (
    BOOTING,
    NO_CONNECTION,
    Machine,
    Phase,
    is_reclaim_announced,
    is_reclaim_withdrawn,
    was_reclaimed,
)
from gpuherd.domain.instance.instance import (
    TERMINAL_STATUSES,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.instance_state import (
    VANISHED,
    given_up_at,
    has_other_ports,
    is_overdue,
    is_restarting,
    is_starting_again,
    keeps_machine,
    was_started_externally,
)
from gpuherd.domain.instance.operation import OperationPhase
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.domain.instance.scheduled_end import Ending
from gpuherd.domain.instance.step_types import (
    RESYNC_INTERVAL,
    AbandonRestart,
    AbandonStart,
    AnnounceReclaim,
    Become,
    ConfirmRestart,
    Delete,
    Fail,
    FollowReclaim,
    LookForRestart,
    Observation,
    ReadDetails,
    Released,
    Rent,
    Resolve,
    Restart,
    RunHealthCheck,
    Settled,
    Start,
    Step,
    Stop,
    UseListedDetails,
    Wait,
    WithdrawReclaim,
)

# If nothing has changed for this long after a request, ask again.
REPEAT_DELETE_AFTER = timedelta(seconds=30)


REPEAT_REQUEST_AFTER = timedelta(seconds=60)


# Connection details may come from a list if the machine has looked the same for at most this time.
LISTED_DETAILS_FRESH = timedelta(seconds=60)


# Phases of a machine that was not started.
_NOT_STARTED = frozenset({Phase.STOPPED, Phase.STOPPING, Phase.FROZEN, Phase.UNKNOWN})


# The cloud's clock and ours differ by at most this.
CLOCKS_APART_MAX = timedelta(minutes=5)


def next_step(
    instance: Instance,
    attempt: Attempt | None,
    observation: Observation,
    now: datetime,
    over: Ending | None = None,
) -> Step:
    """Decide the one step that brings `instance` closer to its goal.

    `over` is an end that is due. It changes the goal.
    """
    # guard: an end does not wait for the answer of a create
    if over is not None:
        # Like an order of a person. It applies also while the outcome of a create call is unknown.
        return over
    # guard: an open attempt is resolved before anything else
    if attempt is not None and attempt.is_open:
        return _resolve(instance, now)
    if instance.releasing:
        return _release(instance, observation, now)
    if instance.goal is Goal.DELETED:
        return _delete_machine(instance, observation, now)
    if instance.status in TERMINAL_STATUSES:
        return _rest(instance, observation, now)
    if instance.goal is Goal.STOPPED and instance.status is not Status.EXITED:
        return _stop_machine(instance, observation, now)
    if step := reclaim_step(instance, observation):
        return step
    if instance.usable or instance.status in (Status.EXITED, Status.MIGRATING):
        return _follow(instance, observation)
    if (restart := restart_step(instance, observation, now)) is not None:
        return restart
    if now >= given_up_at(instance) and not was_started_externally(instance):
        return _too_late(instance, observation)
    if instance.cloud_id is None:
        return Rent()
    return _boot(instance, observation, now)


def _resolve(instance: Instance, now: datetime) -> Step:
    """Find out first, for any goal, whether a machine exists."""
    wanted = instance.goal is Goal.RUNNING and instance.status not in TERMINAL_STATUSES
    if wanted and now >= instance.deadline:
        words = "not usable in time: the outcome of the create call is not known yet"
        return Fail("OUTCOME_UNKNOWN", words)
    return Resolve()


def _boot(instance: Instance, observation: Observation, now: datetime) -> Step:
    """Follow a machine from its creation or start until it is usable."""
    machine = observation.machine
    again = is_starting_again(instance)
    match observation.phase:
        case Phase.ABSENT | Phase.REMOVING:
            # Never create a vanished machine again: the user did not ask for that cost.
            # guard: a machine that vanished is not rented again
            return Fail(VANISHED, "the machine vanished from the cloud before it was usable")
        case Phase.RUNNING:
            return _check_usable(instance, observation, now)
        case Phase.STOPPED if again:
            return (
                Start()
                if is_overdue(instance, now, REPEAT_REQUEST_AFTER)
                else Wait(_recheck_delay(instance, now))
            )
        case Phase.STOPPED if was_started_externally(instance):
            return _stopped(observation)
        case Phase.STOPPED if was_reclaimed(machine):
            return Fail("SPOT_RECLAIMED", "the cloud took the spot machine back before it was usable")
        case _ if machine is not None and machine.error:
            return Fail("STARTUP_FAILED", f"the cloud could not start the machine: {machine.error}")
        case Phase.STOPPED | Phase.FROZEN:
            return Fail("STARTUP_FAILED", "the machine stopped before it was usable")
        case Phase.PULLING | Phase.STARTING if instance.status is Status.CREATING:
            return Become(Status.STARTING)
        case _:
            return Wait(_recheck_delay(instance, now))


def _check_usable(instance: Instance, observation: Observation, now: datetime) -> Step:
    """Find out whether a running machine is usable."""
    match instance.status:
        case Status.RUNNING:
            return Become(Status.HEALTH_CHECKING)
        case Status.HEALTH_CHECKING:
            return RunHealthCheck()
        case _:
            # After every start too, because the ports have changed.
            return _listed_details(instance, observation, now) or ReadDetails()


def _listed_details(instance: Instance, observation: Observation, now: datetime) -> Step | None:
    """Return the step if the list already shows all details.

    For a thousand machines, calls would take minutes.
    """
    machine, since = observation.machine, observation.changed_at
    if machine is None or since is None or not observation.is_listed:
        return None
    # A list may lag behind a start, and would show the ports of the run before.
    is_first_run = instance.started_at is None and not is_starting_again(instance)
    # A record from before our last stop may be long out of date.
    is_fresh = timedelta(0) <= now - since <= LISTED_DETAILS_FRESH
    if not is_first_run or not is_fresh:
        return None
    # Novita's documents show lists without endpoints. A machine without ports looks the same.
    is_whole = bool(machine.ports) and all(port.endpoint for port in machine.ports)
    if not is_whole or machine.connection == NO_CONNECTION:
        return None
    return UseListedDetails(machine, since)


def _follow(instance: Instance, observation: Observation) -> Step:
    """Watch a machine that is in use, or was."""
    match observation.phase:
        case Phase.STOPPED if instance.status is not Status.EXITED:
            return _stopped(observation)
        case Phase.RUNNING if instance.status in (Status.EXITED, Status.MIGRATING):
            # It was started or moved outside gpuherd. Follow it; its ports have changed.
            return ReadDetails()
        case Phase.MIGRATING if instance.usable:
            return Become(Status.MIGRATING)
        case Phase.RUNNING if _was_moved(instance, observation):
            return ReadDetails()
        case Phase.ABSENT:
            return Fail(VANISHED, "the machine vanished from the cloud")
        case _ if instance.status is Status.MIGRATING:
            return Wait()
        case _:
            # A return to booting is only an observation. The status stays, because the machine was usable.
            return Settled()


def _was_moved(instance: Instance, observation: Observation) -> bool:
    """Return True if the machine was moved between two lists: its ports have changed."""
    if observation.machine is None or not has_other_ports(instance, observation.machine):
        return False
    # Read once is enough. A list that shows something else must not cause endless reads.
    known_at = instance.started_at
    return observation.changed_at is not None and known_at is not None and observation.changed_at > known_at


def _stopped(observation: Observation) -> Step:
    taken = was_reclaimed(observation.machine)
    return Become(Status.EXITED, "the cloud took the spot machine back" if taken else "", taken)


def _rest(instance: Instance, observation: Observation, now: datetime) -> Step:
    """Leave an ended instance alone. But a lost machine that is listed again costs money."""
    # guard: a machine that was kept after a failure is known to be gone when it is
    if observation.phase is Phase.ABSENT and keeps_machine(instance):
        # Its id may belong to another machine from now on, and the user who kept it must know.
        return Fail(VANISHED, "the machine that was kept vanished from the cloud")
    lost = instance.last_error is not None and instance.last_error.code == VANISHED
    if not lost or observation.phase not in (Phase.RUNNING, Phase.STOPPED):
        return Settled()
    if instance.goal is Goal.STOPPED:
        return _stop_machine(instance, observation, now)
    if observation.phase is Phase.STOPPED:
        return Become(Status.EXITED)
    if instance.ready_at is None:
        return ReadDetails()
    # Its state has not changed, so it is as usable as before.
    return Become(Status.READY if instance.health_check else Status.RUNNING)


def _stop_machine(instance: Instance, observation: Observation, now: datetime) -> Step:
    """Stop a machine. It costs money until then, so this is never given up."""
    overdue = is_overdue(instance, now, REPEAT_REQUEST_AFTER)
    start_asked = _asked_before(instance, now)
    match observation.phase:
        case Phase.STOPPED if start_asked and not overdue:
            # The start that this stop replaces may still take effect. The observation may be older than that.
            return Wait()
        case Phase.STOPPED:
            return Become(Status.EXITED)
        case Phase.ABSENT:
            return Fail(VANISHED, "the machine vanished from the cloud")
        case Phase.RUNNING | Phase.UNKNOWN if start_asked or overdue:
            return Stop()
        case phase if phase in BOOTING and _never_boots(instance, observation, now):
            # It costs money, and the cloud stops only running machines.
            error = observation.machine.error if observation.machine else ""
            return Fail(
                "STARTUP_FAILED", f"it cannot be stopped: {error or _progress_words(instance, observation)}"
            )
        case _:
            # A booting or migrating machine cannot be stopped yet. The next change wakes this instance.
            return Wait()


def _delete_machine(instance: Instance, observation: Observation, now: datetime) -> Step:
    """Delete a machine, and continue until the cloud proves that it is gone."""
    if instance.status is Status.DELETED:
        return Settled()
    # guard: a delete lasts until the absence is proven
    if instance.cloud_id is None or observation.phase is Phase.ABSENT:
        return Become(Status.DELETED)
    return _remove(instance, observation, now)


def _release(instance: Instance, observation: Observation, now: datetime) -> Step:
    """Remove the machine of a failed instance."""
    if instance.cloud_id is None or observation.phase is Phase.ABSENT:
        return Released()
    return _remove(instance, observation, now)


def _remove(instance: Instance, observation: Observation, now: datetime) -> Step:
    if observation.phase is not Phase.REMOVING and is_overdue(instance, now, REPEAT_DELETE_AFTER):
        return Delete()
    return Wait(REPEAT_DELETE_AFTER)


def _never_boots(instance: Instance, observation: Observation, now: datetime) -> bool:
    """Return True if a first boot failed or takes too long."""
    failed = observation.machine is not None and bool(observation.machine.error)
    return instance.ready_at is None and instance.stopped_at is None and (failed or now >= instance.deadline)


def _asked_before(instance: Instance, now: datetime) -> bool:
    """Return True if the last request to the cloud came before the present operation."""
    operation = instance.operation
    if operation is None or instance.asked_at is None:
        return False
    # After a clock that stepped back, nothing is certainly earlier, and `is_overdue` alone decides.
    return instance.asked_at < operation.requested_at <= now


def _recheck_delay(instance: Instance, now: datetime) -> timedelta:
    if was_started_externally(instance):
        return RESYNC_INTERVAL
    return min(RESYNC_INTERVAL, max(given_up_at(instance) - now, timedelta(0)))


def _too_late(instance: Instance, observation: Observation) -> Step:
    """End an instance that was not usable in time. After a failed start, the machine is as before."""
    words = f"not usable in time: {_progress_words(instance, observation)}"
    if not is_starting_again(instance):
        return Fail("INSTANCE_TIMEOUT", words)
    if instance.asked_at is None and observation.phase in _NOT_STARTED:
        return AbandonStart("NETWORK_ERROR", "the cloud could not be asked for the start in time")
    if observation.phase is Phase.STOPPED:
        return AbandonStart("STARTUP_TIMEOUT", words)
    return Fail("STARTUP_TIMEOUT", words)


def _progress_words(instance: Instance, observation: Observation) -> str:
    if instance.cloud_id is None:
        return "no machine could be rented"
    if observation.phase is Phase.ABSENT:
        return "the machine vanished from the cloud"
    if observation.machine is None:
        return "the cloud has not shown the machine yet"
    if observation.phase in BOOTING:
        return f"still {observation.machine.raw_status or observation.phase} at the deadline"
    return f"the machine is {observation.machine.raw_status or observation.phase}"


def reclaim_step(instance: Instance, observation: Observation) -> Step | None:
    """Follow the lists about a reclaim; None: nothing new."""
    machine, known = observation.machine, instance.reclaim
    if machine is None or instance.status is Status.EXITED:
        return None
    if known is not None and is_reclaim_withdrawn(machine):
        return WithdrawReclaim()
    if not is_reclaim_announced(machine):
        return None
    if known is None:
        return AnnounceReclaim()
    # The time may come later than the notice, and may change.
    at = machine.spot_reclaim_at
    return None if known.reclaim_at == at else FollowReclaim(at)


# How long to watch for a restart. A restart without an answer is not repeated: it may have taken effect, and
# a second one would interrupt the application again.
RESTART_SEEN_WITHIN = timedelta(seconds=60)


def restart_step(instance: Instance, observation: Observation, now: datetime) -> Step | None:
    """Ask for a restart once, and watch for its effect; None if there is nothing to do."""
    operation = instance.operation
    if operation is None or not is_restarting(instance) or operation.has_reached(OperationPhase.STARTING):
        return None
    if observation.phase in (Phase.STOPPED, Phase.REMOVING, Phase.ABSENT):
        # A stopped machine is started instead. A machine that is gone cannot be.
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
        # The cloud accepted it; it was too quick to be seen.
        return ConfirmRestart()
    return AbandonRestart(
        "OUTCOME_UNKNOWN",
        "the restart got no answer, and the machine shows no sign of one; it was not asked for again",
    )


def shows_restart(instance: Instance, machine: Machine) -> bool:
    """Return True if a running machine shows the requested restart."""
    if machine.phase is Phase.RUNNING:
        return has_other_ports(instance, machine)
    return machine.phase in BOOTING or machine.phase in (Phase.STOPPING, Phase.STOPPED)
