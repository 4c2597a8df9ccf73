"""The lifecycle, all of it: from the goal and what the cloud shows to the one step to take now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuherd.domain.attempt import Attempt
from gpuherd.domain.instance import ENDED, Goal, Instance, OnFailure, Status
from gpuherd.domain.machine import BOOTING, Machine, Phase
from gpuherd.domain.operation import OperationKind

# A turn is woken when the cloud changes; this is only the patience of one that nobody wakes.
LOOK_AGAIN = timedelta(seconds=30)
# The cloud was asked and nothing moved for so long: ask again.
REPEAT_DELETE = timedelta(seconds=30)
REPEAT_ASK = timedelta(seconds=60)


@dataclass(frozen=True)
class Resolve:
    """A create has an unknown outcome: look for its machine before anything else."""


@dataclass(frozen=True)
class Rent:
    """Take the next best offer."""


@dataclass(frozen=True)
class ReadDetails:
    """Ask the cloud for this one machine: the list does not show how to connect."""


@dataclass(frozen=True)
class CheckHealth:
    """Ask the application itself whether it is up."""


@dataclass(frozen=True)
class Become:
    """Say a new status; nothing has to be done in the cloud for it."""

    status: Status


@dataclass(frozen=True)
class Fail:
    """Give up, say why, and give the machine back unless it shall be kept."""

    code: str
    reason: str


@dataclass(frozen=True)
class Start:
    """Ask the cloud to start the machine."""


@dataclass(frozen=True)
class Stop:
    """Ask the cloud to stop the machine."""


@dataclass(frozen=True)
class Delete:
    """Ask the cloud to remove the machine."""


@dataclass(frozen=True)
class Released:
    """The machine is proven to be gone; nothing costs money any more."""


@dataclass(frozen=True)
class Wait:
    """Nothing to do but to look again later."""

    delay: timedelta = LOOK_AGAIN


@dataclass(frozen=True)
class Rest:
    """Settled: nothing to do until somebody changes something."""


Step = (
    Resolve
    | Rent
    | ReadDetails
    | CheckHealth
    | Become
    | Fail
    | Start
    | Stop
    | Delete
    | Released
    | Wait
    | Rest
)


@dataclass(frozen=True)
class Sight:
    """What the cloud shows of the instance's machine. `absent` is proof, not merely not seen."""

    machine: Machine | None = None
    absent: bool = False

    @property
    def phase(self) -> Phase:
        if self.absent:
            return Phase.ABSENT
        return self.machine.phase if self.machine else Phase.UNKNOWN


def next_step(instance: Instance, attempt: Attempt | None, sight: Sight, now: datetime) -> Step:
    """Decide the one thing to do now so that `instance` comes closer to its goal."""
    if attempt is not None and attempt.is_open:
        return _resolve(instance, now)
    if instance.releasing:
        return _release(instance, sight, now)
    if instance.goal is Goal.DELETED:
        return _go_away(instance, sight, now)
    if instance.status in ENDED:
        return Rest()
    if instance.goal is Goal.STOPPED and instance.status is not Status.EXITED:
        return _go_down(instance, sight, now)
    if instance.usable or instance.status is Status.EXITED:
        return _watch(instance, sight)
    if now >= instance.deadline and not is_followed(instance):
        return Fail(_timeout_code(instance), f"not usable in time: {_where(instance, sight)}")
    if instance.cloud_id is None:
        return Rent()
    return _come_up(instance, sight, now)


def _resolve(instance: Instance, now: datetime) -> Step:
    """Whatever the goal is: first find out whether a machine exists."""
    wanted = instance.goal is Goal.RUNNING and instance.status not in ENDED
    if wanted and now >= instance.deadline:
        words = "not usable in time: the outcome of the create call is not known yet"
        return Fail("OUTCOME_UNKNOWN", words)
    return Resolve()


def _come_up(instance: Instance, sight: Sight, now: datetime) -> Step:
    """Follow a machine until it can be used, from its creation or from a start."""
    machine = sight.machine
    again = is_starting_again(instance)
    match sight.phase:
        case Phase.ABSENT | Phase.REMOVING:
            # Never re-create what vanished: that spends money nobody asked for.
            return Fail("INSTANCE_VANISHED", "the machine vanished from the cloud before it was usable")
        case Phase.RUNNING:
            return _greet(instance)
        case Phase.STOPPED if again:
            return Start() if _overdue(instance, now, REPEAT_ASK) else Wait(_until(instance, now))
        case Phase.STOPPED if is_followed(instance):
            return Become(Status.EXITED)
        case _ if machine is not None and machine.error:
            return Fail("STARTUP_FAILED", f"the cloud could not start the machine: {machine.error}")
        case Phase.STOPPED | Phase.FROZEN:
            return Fail("STARTUP_FAILED", "the machine stopped before it was usable")
        case Phase.PULLING | Phase.STARTING if instance.status is Status.CREATING:
            return Become(Status.STARTING)
        case _:
            return Wait(_until(instance, now))


def _greet(instance: Instance) -> Step:
    """The machine runs; find out whether it can be used."""
    match instance.status:
        case Status.RUNNING:
            return Become(Status.HEALTH_CHECKING)
        case Status.HEALTH_CHECKING:
            return CheckHealth()
        case _:
            # After every start, too: the ports have changed.
            return ReadDetails()


def _watch(instance: Instance, sight: Sight) -> Step:
    """Keep an eye on a machine that is in use, or was."""
    match sight.phase:
        case Phase.STOPPED if instance.status is not Status.EXITED:
            return Become(Status.EXITED)
        case Phase.RUNNING if instance.status is Status.EXITED:
            # Somebody started it past us. We follow what is, and do not fight.
            return ReadDetails()
        case Phase.ABSENT:
            return Fail("INSTANCE_VANISHED", "the machine vanished from the cloud")
        case _:
            # A flap back to booting is an observation, not a change of status (it was usable once).
            return Rest()


def _go_down(instance: Instance, sight: Sight, now: datetime) -> Step:
    """Stop a machine; this costs money until it is done, so it is never given up."""
    overdue = _overdue(instance, now, REPEAT_ASK)
    start_asked = _asked_before(instance, now)
    match sight.phase:
        case Phase.STOPPED if start_asked and not overdue:
            # The start that this stop puts aside may be on its way: what we see may be older than that.
            return Wait()
        case Phase.STOPPED:
            return Become(Status.EXITED)
        case Phase.ABSENT:
            return Fail("INSTANCE_VANISHED", "the machine vanished from the cloud")
        case Phase.RUNNING | Phase.UNKNOWN if start_asked or overdue:
            return Stop()
        case _:
            # While it boots or migrates it cannot be stopped yet; the next change wakes us.
            return Wait()


def _go_away(instance: Instance, sight: Sight, now: datetime) -> Step:
    """Delete a machine, and go on until the cloud proves that it is gone."""
    if instance.status is Status.DELETED:
        return Rest()
    if instance.cloud_id is None or sight.phase is Phase.ABSENT:
        return Become(Status.DELETED)
    return _remove(instance, sight, now)


def _release(instance: Instance, sight: Sight, now: datetime) -> Step:
    """Give the machine of a failed instance back."""
    if instance.cloud_id is None or sight.phase is Phase.ABSENT:
        return Released()
    return _remove(instance, sight, now)


def _remove(instance: Instance, sight: Sight, now: datetime) -> Step:
    if sight.phase is not Phase.REMOVING and _overdue(instance, now, REPEAT_DELETE):
        return Delete()
    return Wait(REPEAT_DELETE)


def is_starting_again(instance: Instance) -> bool:
    """Tell whether this is a start of what was stopped, and not the first boot."""
    operation = instance.operation
    return operation is not None and operation.is_running and operation.kind is OperationKind.START


def is_followed(instance: Instance) -> bool:
    """Tell whether what comes up again was started past us, so that the deadline is of an earlier boot."""
    return instance.stopped_at is not None and not is_starting_again(instance)


def must_release(instance: Instance) -> bool:
    """Tell whether a failed instance gives its machine back: only one that was never of use to anybody."""
    first_boot = instance.stopped_at is None and not is_starting_again(instance)
    return instance.on_failure is OnFailure.DELETE and not instance.ready_at and first_boot


def _overdue(instance: Instance, now: datetime, patience: timedelta) -> bool:
    """Tell whether the cloud was not asked yet, or so long ago that it must be asked again."""
    # Both ways: after a wall clock that stepped back, the last request seems to lie in the future.
    return instance.asked_at is None or abs(now - instance.asked_at) >= patience


def _asked_before(instance: Instance, now: datetime) -> bool:
    """Tell whether the last request to the cloud was made before the present operation was accepted."""
    operation = instance.operation
    if operation is None or instance.asked_at is None:
        return False
    # After a clock that stepped back nothing is surely earlier, and `_overdue` alone decides.
    return instance.asked_at < operation.requested_at <= now


def _until(instance: Instance, now: datetime) -> timedelta:
    if is_followed(instance):
        return LOOK_AGAIN
    return min(LOOK_AGAIN, max(instance.deadline - now, timedelta(0)))


def _timeout_code(instance: Instance) -> str:
    if not is_starting_again(instance):
        return "INSTANCE_TIMEOUT"
    return "NETWORK_ERROR" if instance.asked_at is None else "STARTUP_TIMEOUT"


def _where(instance: Instance, sight: Sight) -> str:
    if instance.cloud_id is None:
        return "no machine could be rented"
    if sight.phase is Phase.ABSENT:
        return "the machine vanished from the cloud"
    if sight.machine is None:
        return "the cloud has not shown the machine yet"
    if sight.phase in BOOTING:
        return f"still {sight.machine.raw_status or sight.phase} at the deadline"
    return f"the machine is {sight.machine.raw_status or sight.phase}"
