"""The lifecycle, all of it: from the goal and what the cloud shows to the one step to take now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuherd.domain.attempt import Attempt
from gpuherd.domain.instance import ENDED, Goal, Instance, OnFailure, Status
from gpuherd.domain.machine import BOOTING, Machine, Phase

# A turn is woken when the cloud changes; this is only the patience of one that nobody wakes.
LOOK_AGAIN = timedelta(seconds=30)
REPEAT_DELETE = timedelta(seconds=30)


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
class Become:
    """Say a new status; nothing has to be done in the cloud for it."""

    status: Status


@dataclass(frozen=True)
class Fail:
    """Give up, say why, and give the machine back unless it shall be kept."""

    code: str
    reason: str


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


Step = Resolve | Rent | ReadDetails | Become | Fail | Delete | Released | Wait | Rest


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
        if now >= instance.deadline and instance.status not in ENDED:
            return Fail(
                "OUTCOME_UNKNOWN", "not usable in time: the outcome of the create call is not known yet"
            )
        # Whatever the goal is: first find out whether a machine exists.
        return Resolve()
    if instance.releasing:
        return _release(instance, sight, now)
    if instance.status in ENDED:
        return Rest()
    if instance.usable or instance.status is Status.EXITED:
        return _watch(instance, sight)
    if now >= instance.deadline:
        return Fail("INSTANCE_TIMEOUT", f"not usable in time: {_where(instance, sight)}")
    if instance.cloud_id is None:
        # Nothing is rented for somebody who wants it stopped or gone.
        return Rent() if instance.goal is Goal.RUNNING else Rest()
    return _boot(instance, sight, now)


def _boot(instance: Instance, sight: Sight, now: datetime) -> Step:
    """Follow a machine from its creation until it can be used."""
    machine = sight.machine
    match sight.phase:
        case Phase.ABSENT | Phase.REMOVING:
            # Never re-create what vanished: that spends money nobody asked for.
            return Fail("INSTANCE_VANISHED", "the machine vanished from the cloud before it was usable")
        case Phase.RUNNING if instance.status is not Status.RUNNING and not instance.started_at:
            return ReadDetails()
        case _ if machine is not None and machine.error:
            return Fail("STARTUP_FAILED", f"the cloud could not start the machine: {machine.error}")
        case Phase.STOPPED | Phase.FROZEN:
            return Fail("STARTUP_FAILED", "the machine stopped before it was usable")
        case Phase.PULLING | Phase.STARTING if instance.status is Status.CREATING:
            return Become(Status.STARTING)
        case _:
            return Wait(min(LOOK_AGAIN, max(instance.deadline - now, timedelta(0))))


def _watch(instance: Instance, sight: Sight) -> Step:
    """Keep an eye on a machine that is in use, or was."""
    match sight.phase:
        case Phase.STOPPED if instance.status is not Status.EXITED:
            return Become(Status.EXITED)
        case Phase.ABSENT:
            return Fail("INSTANCE_VANISHED", "the machine vanished from the cloud")
        case _:
            # A flap back to booting is an observation, not a change of status (it was usable once).
            return Rest()


def _release(instance: Instance, sight: Sight, now: datetime) -> Step:
    """Give a machine back, and go on until the cloud proves that it is gone."""
    if instance.cloud_id is None or sight.phase is Phase.ABSENT:
        return Released()
    asked = instance.delete_asked_at
    # Both ways: after a wall clock that stepped back, the last request seems to lie in the future.
    overdue = asked is None or abs(now - asked) >= REPEAT_DELETE
    if sight.phase is not Phase.REMOVING and overdue:
        return Delete()
    return Wait(REPEAT_DELETE)


def must_release(instance: Instance) -> bool:
    """Tell whether a failed instance gives its machine back."""
    return instance.on_failure is OnFailure.DELETE and not instance.ready_at


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
