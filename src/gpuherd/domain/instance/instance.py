"""An instance: what we remember of one accepted wish, from the request to the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from operator import attrgetter

from gpuherd.domain.access.api_key import ADMIN_ID
from gpuherd.domain.cloud.machine import NO_CONNECTION, ConnectionDetails, PortMapping
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.run_spec import NO_INPUTS, GivenInputs
from gpuherd.domain.cloud.spot_reclaim import ReclaimNotice
from gpuherd.domain.endings.idleness import UseWatch
from gpuherd.domain.endings.lease_term import LeaseTerm
from gpuherd.domain.endings.terms import NO_TERMS, Terms
from gpuherd.domain.instance.failure import Failure
from gpuherd.domain.instance.health import Health
from gpuherd.domain.instance.health_check import HealthCheck
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.instance.settled_cost import SettledCost
from gpuherd.domain.instance.waiting import StartWait, Waiting
from gpuherd.domain.succession.chain import NO_REPLACEMENT, Chain, ReplacePolicy
from gpuherd.domain.workload.envs import EnvVar
from gpuherd.domain.workload.volumes import VolumeMount


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


class OnFailure(StrEnum):
    """What becomes of the machine when the create fails or times out."""

    DELETE = "delete"
    KEEP = "keep"


class Optimize(StrEnum):
    """What matters more: the order of the regions, or the price."""

    REGION = "region"
    PRICE = "price"


@dataclass(frozen=True)
class Wish:
    """What the user would accept."""

    # The first of the names, where there are several.
    product_name: str
    # Empty where an image is given instead.
    template_id: str
    gpu_num: int = 1
    disk_gb: int = 60
    # Codes, best first; empty means anywhere.
    regions: tuple[str, ...] = ()
    billing_mode: BillingMode = BillingMode.SPOT
    hourly_usd_max: Decimal | None = None
    optimize: Optimize = Optimize.REGION
    # How long to wait for an offer that fits, if there is none now.
    capacity_wait_s: int = 0
    # All products that would do, best first; empty where there is one.
    product_names: tuple[str, ...] = ()
    # A spot wish that may also be rented on demand once it has waited so long for spot; None: never.
    fallback_after_s: int | None = None
    # What runs, beside or instead of the template: what is given here wins, and variables are merged.
    image_url: str | None = None
    command: str | None = None
    # As `8888/http`.
    ports: tuple[str, ...] | None = None
    min_cuda_version: str | None = None
    registry_auth_id: str | None = None
    envs: tuple[EnvVar, ...] = ()
    # Network volumes of the account; they pin the region.
    volumes: tuple[VolumeMount, ...] = ()

    @property
    def needs_template(self) -> bool:
        """Whether a template is a part of what runs."""
        return bool(self.template_id) or self.image_url is None

    @property
    def inputs(self) -> GivenInputs:
        """What wins over the template."""
        # As nearly all wishes are.
        if _given(self) == _NOTHING_GIVEN:
            return NO_INPUTS
        return GivenInputs(
            image_url=self.image_url,
            command=self.command,
            ports=self.ports,
            min_cuda_version=self.min_cuda_version,
            registry_auth_id=self.registry_auth_id,
            env_names=tuple([it.name for it in self.envs]),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """What the products are called that would do, best first."""
        return self.product_names or (self.product_name,)

    @property
    def patience_s(self) -> int:
        """How long it may take until something is rented; 0: now or never."""
        return max(self.capacity_wait_s, self.fallback_after_s or 0)


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
class Instance:
    """One accepted wish and everything that became of it."""

    id: str
    name: str
    wish: Wish
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


_given = attrgetter("image_url", "command", "ports", "min_cuda_version", "registry_auth_id", "envs")
_NOTHING_GIVEN = (None, None, None, None, None, ())
ID_PREFIX = "inst_"
USABLE_STATUSES = frozenset({Status.RUNNING, Status.READY})
TERMINAL_STATUSES = frozenset({Status.FAILED, Status.DELETED})
