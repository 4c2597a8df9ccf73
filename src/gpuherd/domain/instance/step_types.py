"""The steps that a reconcile pass can take, and the observation from which it decides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.scheduled_end import Ending

# A change in the cloud wakes the job. This is the resync for a lost wakeup.
RESYNC_INTERVAL = timedelta(seconds=30)


@dataclass(frozen=True)
class Resolve:
    """A create has an unknown outcome: look for its machine before anything else."""


@dataclass(frozen=True)
class Rent:
    """Take the next best offer."""


@dataclass(frozen=True)
class ReadDetails:
    """Read this one machine: the list does not show its connection details, or not reliably."""


@dataclass(frozen=True)
class UseListedDetails:
    """The list shows a newly running machine with its connection details: no call is needed."""

    machine: Machine
    # Since when the list shows it like this. Later changes are news.
    since: datetime


@dataclass(frozen=True)
class RunHealthCheck:
    """Ask the application whether it is up."""


@dataclass(frozen=True)
class Become:
    """Set a new status, without a call to the cloud."""

    status: Status
    # Set if the status alone does not say enough.
    reason: str = ""
    # The cloud took the machine back.
    is_loss: bool = False


@dataclass(frozen=True)
class Fail:
    """Give up with a reason, and remove the machine unless it must be kept."""

    code: str
    reason: str


@dataclass(frozen=True)
class Start:
    """Ask the cloud to start the machine."""


@dataclass(frozen=True)
class AbandonStart:
    """End the start without success. The machine stays stopped and can be started again."""

    code: str
    reason: str


@dataclass(frozen=True)
class Restart:
    """Ask the cloud to restart the machine. Once, because a second call would interrupt it again."""


@dataclass(frozen=True)
class LookForRestart:
    """Read this one machine, to see whether the restart has taken effect."""


@dataclass(frozen=True)
class ConfirmRestart:
    """The restart has taken effect. From here on, the machine shows its new run."""


@dataclass(frozen=True)
class AbandonRestart:
    """End the restart without success, and continue with the machine as it is."""

    code: str
    reason: str


@dataclass(frozen=True)
class Stop:
    """Ask the cloud to stop the machine."""


@dataclass(frozen=True)
class Delete:
    """Ask the cloud to remove the machine."""


@dataclass(frozen=True)
class AnnounceReclaim:
    """Announce that the cloud will take the machine back."""


@dataclass(frozen=True)
class FollowReclaim:
    """Update the reclaim time to what the cloud says now, which may be no time."""

    reclaim_at: datetime | None


@dataclass(frozen=True)
class WithdrawReclaim:
    """Announce that the cloud will not take the machine back after all."""


@dataclass(frozen=True)
class Released:
    """The machine is proven to be gone. It costs nothing any more."""


@dataclass(frozen=True)
class Wait:
    """Nothing to do now; check again later."""

    delay: timedelta = RESYNC_INTERVAL


@dataclass(frozen=True)
class Settled:
    """Nothing to do until the goal or the machine changes."""


Step = (
    Resolve
    | Rent
    | ReadDetails
    | UseListedDetails
    | RunHealthCheck
    | Become
    | Fail
    | Start
    | AbandonStart
    | Restart
    | LookForRestart
    | ConfirmRestart
    | AbandonRestart
    | Stop
    | Delete
    | AnnounceReclaim
    | FollowReclaim
    | WithdrawReclaim
    | Ending
    | Released
    | Wait
    | Settled
)


@dataclass(frozen=True)
class Observation:
    """What the cloud shows of the instance's machine. `absent` is a proof, not merely a missing entry."""

    machine: Machine | None = None
    absent: bool = False
    # Since when it has looked like this, if known.
    changed_at: datetime | None = None
    # The last credible list showed it, so it is not from an earlier list.
    is_listed: bool = False

    @property
    def phase(self) -> Phase:
        if self.absent:
            return Phase.ABSENT
        return self.machine.phase if self.machine else Phase.UNKNOWN
