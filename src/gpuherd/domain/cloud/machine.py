"""A machine as the cloud shows it: phases, spot notice, log addresses."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum


class Phase(StrEnum):
    """The state of a machine in the cloud's words."""

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
    # An unknown word: keep the known status and report the word.
    UNKNOWN = "unknown"


BOOTING = frozenset({Phase.CREATING, Phase.PULLING, Phase.STARTING})


@dataclass(frozen=True)
class PortMapping:
    """One port of the container, and its public address."""

    port: int
    endpoint: str
    type: str


@dataclass(frozen=True)
class ConnectionDetails:
    """How a person connects. Passwords are never stored."""

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
    # The tag again, from the container's environment: a second proof of ownership.
    env_tag: str = ""
    ports: tuple[PortMapping, ...] = ()
    connection: ConnectionDetails = NO_CONNECTION
    # The total price per hour, if the cloud reports it. It is read when a cost begins, is not stored, and is
    # not part of equality.
    hourly_usd: Decimal | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Listing:
    """All machines of the account, from one walk over the cloud's pages."""

    machines: tuple[Machine, ...]
    # False if rows and total disagree, or a page came twice. An incomplete list can show machines; it cannot
    # prove one missing.
    complete: bool
    started_at: datetime
    finished_at: datetime


# `reclaimed` is undocumented, but it occurs.
RECLAIM_SPOT_STATUSES = frozenset({"notified", "reclaiming", "terminated", "reclaimed"})


# Novita promises this time between notice and loss.
RECLAIM_NOTICE = timedelta(hours=1)


@dataclass(frozen=True)
class ReclaimNotice:
    """The cloud's announcement that it takes a machine back."""

    # When a list first showed the notice.
    seen_at: datetime
    # The reclaim time from the cloud. Novita reports it only after the reclaim has begun.
    reclaim_at: datetime | None
    # The cloud's time if known, otherwise the promised time.
    loss_expected_at: datetime


def read_notice(reclaim_at: datetime | None, seen_at: datetime, promised: timedelta) -> ReclaimNotice:
    """Return a notice that was first seen at `seen_at`, with the reclaim time that the cloud reports now."""
    return ReclaimNotice(seen_at, reclaim_at, seen_at + promised if reclaim_at is None else reclaim_at)


def is_reclaim_withdrawn(machine: Machine | None) -> bool:
    """Return True if a machine runs without a notice. Meaningful only after a notice."""
    return machine is not None and machine.phase is Phase.RUNNING and not _is_marked(machine)


def is_reclaim_announced(machine: Machine | None) -> bool:
    """Return True if a running machine has a reclaim notice."""
    return machine is not None and machine.phase is Phase.RUNNING and _is_marked(machine)


def was_reclaimed(machine: Machine | None) -> bool:
    """Return True if the cloud reclaimed the machine, rather than stopping it on request."""
    return machine is not None and machine.phase is Phase.STOPPED and _is_marked(machine)


def _is_marked(machine: Machine) -> bool:
    return machine.spot_reclaim_at is not None or machine.spot_status in RECLAIM_SPOT_STATUSES


class LogSource(StrEnum):
    """Whose log: the program on the machine, or the cloud's own."""

    INSTANCE = "instance"
    SYSTEM = "system"


@dataclass(frozen=True)
class LogAddresses:
    """Where the logs of a machine are streamed; empty if they are not.

    An address may contain a token. Only the egress uses it; it is never shown, logged or stored.
    """

    phase: Phase
    instance: str = field(default="", repr=False)
    system: str = field(default="", repr=False)

    def of(self, source: LogSource) -> str:
        """Return the address of one log."""
        return self.system if source is LogSource.SYSTEM else self.instance
