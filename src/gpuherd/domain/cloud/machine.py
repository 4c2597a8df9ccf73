"""A machine: what the cloud runs and bills, in our words."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
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
