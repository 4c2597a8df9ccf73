"""Our record of one rental: goal, status, and what the cloud said."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from gpuherd.domain.api_key import ADMIN_ID
from gpuherd.domain.cloud.machine import (
    NO_CONNECTION,
    ConnectionDetails,
    PortMapping,
    ReclaimNotice,
)
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.health import Health, HealthCheck
from gpuherd.domain.instance.idleness import UseWatch
from gpuherd.domain.instance.launch_spec import LaunchSpec, OnFailure
from gpuherd.domain.instance.lease import NO_TERMS, LeaseTerm, Terms
from gpuherd.domain.instance.lineage import NO_REPLACEMENT, Chain, ReplacePolicy
from gpuherd.domain.instance.operation import Failure, Operation


class Goal(StrEnum):
    """What the user wants of the instance."""

    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class Status(StrEnum):
    """The status that gpuherd reports."""

    CREATING = "creating"
    STARTING = "starting"
    RUNNING = "running"
    HEALTH_CHECKING = "health_checking"
    READY = "ready"
    STOPPING = "stopping"
    EXITED = "exited"
    MIGRATING = "migrating"
    DELETING = "deleting"
    DELETED = "deleted"
    FAILED = "failed"


@dataclass(frozen=True)
class Rental:
    """The rented offer and its price."""

    product_id: str
    product_name: str
    region: str
    cluster_id: str
    gpu_hourly_usd: Decimal
    image_url: str
    # None if the launch spec had only one possible mode.
    billing_mode: BillingMode | None = None


@dataclass(frozen=True)
class SettledCost:
    """An amount, its maximum error, and the present hourly cost; all in nano-dollars."""

    amount: int = 0
    doubt: int = 0
    rate: int = 0
    # None if no list has shown the machine yet.
    at: datetime | None = None


@dataclass(frozen=True)
class Instance:
    """Our record of one accepted launch spec and its rental."""

    id: str
    name: str
    wish: LaunchSpec
    goal: Goal
    status: Status
    created_at: datetime
    # It must be usable before this time.
    deadline: datetime
    estimated_ready_at: datetime
    # The id of the key that created it. Other keys do not see it.
    owner: str = ADMIN_ID
    # Its expected total cost per hour when it was accepted, if known.
    expected_hourly_usd: Decimal | None = None
    reason: str = ""
    # Since when it has this status; None if an older version wrote it.
    status_since: datetime | None = None
    # What it waits for, while it waits. A new reason ends the wait.
    waiting_for: Waiting | None = None
    # Since when it has waited for capacity. It keeps its place while the outcome of a call is unknown.
    line_since: datetime | None = None
    # Set for a start that may wait for capacity.
    start_wait: StartWait | None = None
    webhook_url: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.DELETE
    cloud_id: str | None = None
    # Its machine's former id, which the cloud gave to another machine.
    former_cloud_id: str | None = None
    rental: Rental | None = None
    # The hourly price of its disk beside the GPUs. It is paid also while the instance is stopped.
    disk_hourly_usd: Decimal = Decimal(0)
    ports: tuple[PortMapping, ...] = ()
    connection: ConnectionDetails = NO_CONNECTION
    # When the cloud made the machine, by the cloud's clock; None until it was seen.
    machine_made_at: datetime | None = None
    # Our tag was seen on the machine, so recovery by name works.
    tag_verified: bool = False
    started_at: datetime | None = None
    ready_at: datetime | None = None
    stopped_at: datetime | None = None
    # The cloud's announcement that it takes the spot machine back. It stays after the loss.
    reclaim: ReclaimNotice | None = None
    # Whether and how the instance is replaced when the cloud takes its machine back.
    replacement: ReplacePolicy = NO_REPLACEMENT
    # When its handover needs the next pass, even if nothing changes.
    look_at: datetime | None = None
    # Its place in its lineage; None if it is alone.
    chain: Chain | None = None
    # The terms that end it, and their progress.
    terms: Terms = NO_TERMS
    lease_term: LeaseTerm | None = None
    # When its user last reported use.
    used_at: datetime | None = None
    # Since when its present run is usable, if it may end by idleness.
    usable_at: datetime | None = None
    # What else is known about its use, if it may end by idleness.
    use_watch: UseWatch | None = None
    # The user was notified that the cloud will drop the data of the stopped machine.
    data_expiry_told: bool = False
    # The machine must be removed and is not yet proven to be gone.
    releasing: bool = False
    # When the cloud was last asked to start, stop or remove it for the present goal. A stop keeps the time of
    # the start that it replaces.
    asked_at: datetime | None = None
    # The last accepted start, restart, stop or delete.
    operation: Operation | None = None
    # The health check and its result; None if there is no check.
    health_check: HealthCheck | None = None
    health: Health | None = None
    last_error: Failure | None = None
    # Nothing is left to do until the cloud or the user changes something.
    settled: bool = False
    # The caller's id of the request that set the present goal; only for logs.
    correlation_id: str = ""
    # The number of the last event, so that receivers can drop stale ones.
    sequence: int = 0
    version: int = 0
    # The meter at the last change. A pass does not write it.
    cost: SettledCost = field(default=SettledCost(), compare=False)

    @property
    def key(self) -> str:
        """The part of the id that is in the tag."""
        return self.id.removeprefix(ID_PREFIX)

    @property
    def product_name(self) -> str:
        """The catalogue name of the rented product; before the rental, the name in the launch spec."""
        return self.wish.product_name if self.rental is None else self.rental.product_name

    @property
    def billing_mode(self) -> BillingMode:
        """The present or future billing mode."""
        return (self.rental and self.rental.billing_mode) or self.wish.billing_mode

    @property
    def hourly_usd(self) -> Decimal | None:
        """The total hourly price while it runs, once it is rented."""
        if self.rental is None:
            return None
        return self.rental.gpu_hourly_usd * self.wish.gpu_num + self.disk_hourly_usd

    @property
    def loss_expected_at(self) -> datetime | None:
        """When its machine will be taken back, if it has one to lose."""
        is_over = self.status in TERMINAL_STATUSES or self.status is Status.EXITED
        return None if self.reclaim is None or is_over else self.reclaim.loss_expected_at

    @property
    def lineage(self) -> str:
        """The id of the first instance of its lineage; its own id if it is alone."""
        return self.id if self.chain is None else self.chain.lineage

    @property
    def last_cloud_id(self) -> str | None:
        """The id of its machine, also after the machine is gone."""
        return self.cloud_id or self.former_cloud_id

    @property
    def usable(self) -> bool:
        """True if it can be used now: the application answers, or there is no check."""
        unchecked = self.status is Status.RUNNING and self.health_check is None
        return self.ready_at is not None and (unchecked or self.status is Status.READY)


ID_PREFIX = "inst_"
USABLE_STATUSES = frozenset({Status.RUNNING, Status.READY})
TERMINAL_STATUSES = frozenset({Status.FAILED, Status.DELETED})


class WaitingFor(StrEnum):
    """What must change before the work can continue."""

    CLOUD = "cloud"
    CAPACITY = "capacity"
    # An admin must resume creates.
    CREATES = "creates"


@dataclass(frozen=True)
class Waiting:
    """One wait: for what, why, and since when."""

    what: WaitingFor
    message: str
    # None if an older version wrote it.
    since: datetime | None

    def continuing(self, earlier: Waiting | None) -> Waiting:
        """Return this wait as a continuation of an earlier one for the same thing."""
        if earlier is None or earlier.what is not self.what:
            return self
        return replace(self, since=earlier.since)


# The first rest of an offer without stock. It doubles each time.
REST_FIRST = timedelta(seconds=30)


REST_CAP = timedelta(minutes=10)


def rest_length(refusals: int) -> timedelta:
    """Return how long an offer rests after this many refusals in a row."""
    return min(REST_CAP, REST_FIRST * (1 << min(refusals - 1, 10)))


@dataclass(frozen=True)
class StartWait:
    """How long a start may wait for GPUs that others have now, and its progress."""

    seconds: int
    refusals: int = 0
    refused_at: datetime | None = None
    message: str = ""

    def refused(self, message: str, now: datetime) -> StartWait:
        """Return the wait after one more refusal."""
        return StartWait(self.seconds, self.refusals + 1, now, message)

    def next_try_at(self, now: datetime) -> datetime:
        """Return when the start may be requested again."""
        if self.refused_at is None:
            return now
        rest = rest_length(self.refusals)
        # abs(): if the wall clock stepped back, the refusal seems to lie in the future.
        return now if abs(now - self.refused_at) >= rest else self.refused_at + rest
