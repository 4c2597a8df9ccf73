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
    """What the user wants of it."""

    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class Status(StrEnum):
    """What we say about it."""

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
    """What was rented in the end: the offer that was taken and its price."""

    product_id: str
    product_name: str
    region: str
    cluster_id: str
    gpu_hourly_usd: Decimal
    image_url: str
    # None where the wish left no choice.
    billing_mode: BillingMode | None = None


@dataclass(frozen=True)
class SettledCost:
    """An amount, by how much it may be wrong, and what is paid an hour since; all in nano-dollars."""

    amount: int = 0
    doubt: int = 0
    rate: int = 0
    # None of one that no list has shown yet.
    at: datetime | None = None


@dataclass(frozen=True)
class Instance:
    """One accepted wish and everything that became of it."""

    id: str
    name: str
    wish: LaunchSpec
    goal: Goal
    status: Status
    created_at: datetime
    # Until then it must be usable.
    deadline: datetime
    estimated_ready_at: datetime
    # The id of the key that it was made with; others do not see it.
    owner: str = ADMIN_ID
    # What the whole of it was expected to cost when it was accepted, if that was known.
    expected_hourly_usd: Decimal | None = None
    reason: str = ""
    # Since when it has this status; None where a version wrote it that did not keep the time.
    status_since: datetime | None = None
    # What keeps it from going on, while something does. Whoever sets a new reason ends the wait.
    waiting_for: Waiting | None = None
    # Since when it has waited for capacity. It keeps its place while a call of it has an unknown outcome.
    line_since: datetime | None = None
    # Of a start that may wait for capacity.
    start_wait: StartWait | None = None
    webhook_url: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.DELETE
    cloud_id: str | None = None
    # What its machine was called before the cloud gave that id to another one.
    former_cloud_id: str | None = None
    rental: Rental | None = None
    # What its disk costs an hour beside the GPUs, also while it is stopped.
    disk_hourly_usd: Decimal = Decimal(0)
    ports: tuple[PortMapping, ...] = ()
    connection: ConnectionDetails = NO_CONNECTION
    # When the cloud made its machine, by the cloud's own clock; None until it was seen.
    machine_made_at: datetime | None = None
    # Our tag was seen on the machine, so recovery by name works for it.
    tag_verified: bool = False
    started_at: datetime | None = None
    ready_at: datetime | None = None
    stopped_at: datetime | None = None
    # The cloud has announced that it will take the spot machine back. It stays when that has happened.
    reclaim: ReclaimNotice | None = None
    # Whether it is replaced when the cloud takes its machine back.
    replacement: ReplacePolicy = NO_REPLACEMENT
    # When its handover must be looked at next although nothing changes.
    look_at: datetime | None = None
    # Its place among the instances that take over from one another; None of one that is alone.
    chain: Chain | None = None
    # Until when it may cost money, as agreed, and how far that is.
    terms: Terms = NO_TERMS
    lease_term: LeaseTerm | None = None
    # When its user last said that it is in use.
    used_at: datetime | None = None
    # Since when its present run is usable, where it may end because nobody uses it.
    usable_at: datetime | None = None
    # What is known about its use otherwise, where it may end by idleness.
    use_watch: UseWatch | None = None
    # It was told that the cloud will drop the data of the stopped machine.
    data_expiry_told: bool = False
    # The machine must be given back, and is not yet proven to be gone.
    releasing: bool = False
    # When the cloud was last asked to start, stop or remove it on the way to the present goal; a stop keeps
    # in mind when the start was asked for that it puts aside.
    asked_at: datetime | None = None
    # The start, restart, stop or delete that was accepted last.
    operation: Operation | None = None
    # How to find out whether the application is up, and what was found; None where no check was asked for.
    health_check: HealthCheck | None = None
    health: Health | None = None
    last_error: Failure | None = None
    # Nothing is left to do until the cloud or the user changes something.
    settled: bool = False
    # Of the request that asked for its present goal, as its caller calls it: for the log, nothing else.
    correlation_id: str = ""
    # The number of the last event, so that receivers can drop stale ones.
    sequence: int = 0
    version: int = 0
    # As its meter stood at the last change; no part of what a pass writes.
    cost: SettledCost = field(default=SettledCost(), compare=False)

    @property
    def key(self) -> str:
        """The part of the id that goes into the tag."""
        return self.id.removeprefix(ID_PREFIX)

    @property
    def product_name(self) -> str:
        """What its product is called in the catalogue once it is rented; before that, in the wish."""
        return self.wish.product_name if self.rental is None else self.rental.product_name

    @property
    def billing_mode(self) -> BillingMode:
        """How it is paid for, or is to be."""
        return (self.rental and self.rental.billing_mode) or self.wish.billing_mode

    @property
    def hourly_usd(self) -> Decimal | None:
        """What all of it costs an hour while it runs, once it is rented."""
        if self.rental is None:
            return None
        return self.rental.gpu_hourly_usd * self.wish.gpu_num + self.disk_hourly_usd

    @property
    def loss_expected_at(self) -> datetime | None:
        """When its machine will be taken back, while there is one to lose."""
        is_over = self.status in TERMINAL_STATUSES or self.status is Status.EXITED
        return None if self.reclaim is None or is_over else self.reclaim.loss_expected_at

    @property
    def lineage(self) -> str:
        """The id of the first of the instances that take over from one another; its own where it is alone."""
        return self.id if self.chain is None else self.chain.lineage

    @property
    def last_cloud_id(self) -> str | None:
        """The id of its machine, also after it has gone."""
        return self.cloud_id or self.former_cloud_id

    @property
    def usable(self) -> bool:
        """Whether it can be used now: the application answers, or no check was asked for."""
        unchecked = self.status is Status.RUNNING and self.health_check is None
        return self.ready_at is not None and (unchecked or self.status is Status.READY)


ID_PREFIX = "inst_"
USABLE_STATUSES = frozenset({Status.RUNNING, Status.READY})
TERMINAL_STATUSES = frozenset({Status.FAILED, Status.DELETED})


class WaitingFor(StrEnum):
    """What has to change before the work can go on."""

    CLOUD = "cloud"
    CAPACITY = "capacity"
    # An admin has to let creates go on.
    CREATES = "creates"


@dataclass(frozen=True)
class Waiting:
    """One wait: for what, why, and since when."""

    what: WaitingFor
    message: str
    # None where a version wrote it that did not keep the time.
    since: datetime | None

    def continuing(self, earlier: Waiting | None) -> Waiting:
        """Return this wait as the continuation of an earlier one, if that is for the same."""
        if earlier is None or earlier.what is not self.what:
            return self
        return replace(self, since=earlier.since)


# What was refused for lack of stock is left alone so long, twice as long each time.
REST_FIRST = timedelta(seconds=30)


REST_CAP = timedelta(minutes=10)


def rest_length(refusals: int) -> timedelta:
    """Return how long something is left alone after so many refusals in a row."""
    return min(REST_CAP, REST_FIRST * (1 << min(refusals - 1, 10)))


@dataclass(frozen=True)
class StartWait:
    """How long a start may wait for its machine's GPUs, which others may have now, and how that goes."""

    seconds: int
    refusals: int = 0
    refused_at: datetime | None = None
    message: str = ""

    def refused(self, message: str, now: datetime) -> StartWait:
        """Return it after one more refusal."""
        return StartWait(self.seconds, self.refusals + 1, now, message)

    def next_try_at(self, now: datetime) -> datetime:
        """Return when the start may be asked for again."""
        if self.refused_at is None:
            return now
        rest = rest_length(self.refusals)
        # Both ways: after a wall clock that stepped back, the refusal seems to lie in the future.
        return now if abs(now - self.refused_at) >= rest else self.refused_at + rest
