"""A machine as the cloud shows it: phases, spot notice, log addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum


class Phase(StrEnum):
    """What the cloud says about a machine."""

    CREATING = "creating"
    PULLING = "pulling"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    MIGRATING = "migrating"
    FROZEN = "frozen"
    REMOVING = "removing"
    ABSENT = "absent"
    # A word that we do not know yet: keep what we knew and say so.
    UNKNOWN = "unknown"


BOOTING = frozenset({Phase.CREATING, Phase.PULLING, Phase.STARTING})


@dataclass(frozen=True)
class PortMapping:
    """One port of the container and where the world reaches it."""

    port: int
    endpoint: str
    type: str


@dataclass(frozen=True)
class ConnectionDetails:
    """How a person gets in. Passwords are left out on purpose: they are never stored."""

    ssh: str = ""
    jupyter: str = ""
    web_terminal: str = ""


NO_CONNECTION = ConnectionDetails()


@dataclass(frozen=True)
class Machine:
    """One machine as the cloud showed it at one moment."""

    cloud_id: str
    name: str
    phase: Phase
    raw_status: str
    error: str = ""
    cluster_id: str = ""
    region: str = ""
    product_id: str = ""
    product_name: str = ""
    gpu_num: int = 0
    disk_gb: int = 0
    image_url: str = ""
    billing_mode: str = ""
    spot_status: str = ""
    spot_reclaim_at: datetime | None = None
    created_at: datetime | None = None
    # The same tag as in the name, from the environment of the container: a second witness of ownership.
    env_tag: str = ""
    ports: tuple[PortMapping, ...] = ()
    connection: ConnectionDetails = NO_CONNECTION
    # What the cloud says that all of it costs an hour, where it says so. It is read when it begins to cost
    # something, is not stored, and makes no machine another one.
    hourly_usd: Decimal | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Listing:
    """All machines of the account, as one walk over the cloud's pages saw them."""

    machines: tuple[Machine, ...]
    # False when rows and total disagree or a page came twice: good for finding, useless for missing.
    complete: bool
    started_at: datetime
    finished_at: datetime


# `reclaimed` is in no document, but has been seen.
RECLAIM_SPOT_STATUSES = frozenset({"notified", "reclaiming", "terminated", "reclaimed"})


# Novita promises so much time between the notice and the loss.
RECLAIM_NOTICE = timedelta(hours=1)


# So many notices must be known before they are believed more than the promise; the latest ones count.
NOTICES_MIN, NOTICES_KEPT = 10, 200


# What seems longer is a mistake of a clock.
NOTICE_LONGEST = timedelta(days=7)


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


def usual_notice(lengths_s: Sequence[float], promised: timedelta) -> timedelta:
    """Return for how long after its notice a machine can be counted on: as long as nineteen of twenty were
    seen to be there, and not longer than is promised."""
    if len(lengths_s) < NOTICES_MIN:
        return promised
    return min(promised, timedelta(seconds=sorted(lengths_s)[(len(lengths_s) - 1) // 20]))


def counted_on_until(notice: ReclaimNotice, usual: timedelta) -> datetime:
    """Return how long a machine can be counted on after its notice; what the cloud says is exact."""
    if notice.reclaim_at is not None:
        return notice.loss_expected_at
    return min(notice.loss_expected_at, notice.seen_at + usual)


def with_notice(lengths_s: Sequence[float], length: timedelta) -> Sequence[float]:
    """Return what was seen with one notice more."""
    if not timedelta(0) <= length <= NOTICE_LONGEST:
        return lengths_s
    return [*lengths_s, length.total_seconds()][-NOTICES_KEPT:]


def is_reclaim_withdrawn(machine: Machine | None) -> bool:
    """Return True if a machine runs and nothing is said of a reclaim; it means something after a notice."""
    return machine is not None and machine.phase is Phase.RUNNING and not _is_marked(machine)


def is_reclaim_announced(machine: Machine | None) -> bool:
    """Return True if a machine that still runs is about to be taken back."""
    return machine is not None and machine.phase is Phase.RUNNING and _is_marked(machine)


def was_reclaimed(machine: Machine | None) -> bool:
    """Return True if a machine stopped because the cloud took it back, and not on request."""
    return machine is not None and machine.phase is Phase.STOPPED and _is_marked(machine)


def _is_marked(machine: Machine) -> bool:
    return machine.spot_reclaim_at is not None or machine.spot_status in RECLAIM_SPOT_STATUSES


class LogSource(StrEnum):
    """Whose words: those of the program on the machine, or those of the cloud about it."""

    INSTANCE = "instance"
    SYSTEM = "system"


@dataclass(frozen=True)
class LogAddresses:
    """Where the logs of a machine are streamed, empty where they are not.

    An address may carry a token, so it is for the egress alone: never shown, logged or stored.
    """

    phase: Phase
    instance: str = field(default="", repr=False)
    system: str = field(default="", repr=False)

    def of(self, source: LogSource) -> str:
        """Return the address of one of the logs."""
        return self.system if source is LogSource.SYSTEM else self.instance
