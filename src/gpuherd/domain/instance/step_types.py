"""The steps.

What a reconcile pass may do next, and the observation of the cloud that a decision is made from.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.scheduled_end import Ending

# A job is woken when the cloud changes; this is the resync for one that is not.
RESYNC_INTERVAL = timedelta(seconds=30)


@dataclass(frozen=True)
class Resolve:
    """A create has an unknown outcome: look for its machine before anything else."""


@dataclass(frozen=True)
class Rent:
    """Take the next best offer."""


@dataclass(frozen=True)
class ReadDetails:
    """Ask the cloud for this one machine: the list does not show how to connect, or not reliably."""


@dataclass(frozen=True)
class UseListedDetails:
    """The list shows a machine that runs for the first time, and how to connect: no call is needed."""

    machine: Machine
    # Since when the list shows it so; what changes later is news.
    since: datetime


@dataclass(frozen=True)
class RunHealthCheck:
    """Ask the application itself whether it is up."""


@dataclass(frozen=True)
class Become:
    """Say a new status; nothing has to be done in the cloud for it."""

    status: Status
    # Where the status alone does not tell enough.
    reason: str = ""
    # The cloud took the machine back.
    is_loss: bool = False


@dataclass(frozen=True)
class Fail:
    """Give up, say why, and give the machine back unless it shall be kept."""

    code: str
    reason: str


@dataclass(frozen=True)
class Start:
    """Ask the cloud to start the machine."""


@dataclass(frozen=True)
class AbandonStart:
    """End the start without success: the machine stands still as before, and can be started again."""

    code: str
    reason: str


@dataclass(frozen=True)
class Restart:
    """Ask the cloud to restart the machine; once, because a second time would interrupt it once more."""


@dataclass(frozen=True)
class LookForRestart:
    """Ask the cloud for this one machine, to see whether the restart has taken effect."""


@dataclass(frozen=True)
class ConfirmRestart:
    """The restart has taken effect; what the machine shows from here on is of the new run."""


@dataclass(frozen=True)
class AbandonRestart:
    """End the restart without success, and go on with the machine as it is."""

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
    """Tell that the cloud will take the machine back."""


@dataclass(frozen=True)
class FollowReclaim:
    """Take over what the cloud says by now about when it takes the machine back, or that it does not say."""

    reclaim_at: datetime | None


@dataclass(frozen=True)
class WithdrawReclaim:
    """Tell that the cloud will not take the machine back after all."""


@dataclass(frozen=True)
class Released:
    """The machine is proven to be gone; nothing costs money any more."""


@dataclass(frozen=True)
class Wait:
    """Nothing to do but to look again later."""

    delay: timedelta = RESYNC_INTERVAL


@dataclass(frozen=True)
class Settled:
    """Settled: nothing to do until goal or machine changes."""


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
    """What the cloud shows of the instance's machine. `absent` is proof, not merely not seen."""

    machine: Machine | None = None
    absent: bool = False
    # Since when it looks like this, where that is known.
    changed_at: datetime | None = None
    # The last believable list showed it; it is not a memory of earlier ones.
    is_listed: bool = False

    @property
    def phase(self) -> Phase:
        if self.absent:
            return Phase.ABSENT
        return self.machine.phase if self.machine else Phase.UNKNOWN
