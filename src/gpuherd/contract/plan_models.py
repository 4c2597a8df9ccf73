"""Plans, attempts and reasons: what a create would do, and why an instance is as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from gpuherd.contract.instance_models import Answer, Failure, Status
from gpuherd.contract.launch_models import BillingChoice, BillingMode, CapacityWait, Optimize
from gpuherd.contract.lease_models import HealthReport
from gpuherd.contract.wire_models import LeftOutIfNone, Moment, Number, ReplyModel, Usd, one_of
from gpuherd.contract.workload_models import MountedVolume


class WholeOffer(ReplyModel):
    """An offer as it would be rented: CPUs and memory are of the whole instance."""

    product_id: str
    product_name: str
    region: str
    billing_mode: BillingMode
    hourly_price: Usd | None = Field(description="of the whole instance, its disk included")
    gpu_hourly_price: Usd | None = Field(description="of one GPU")
    disk_hourly_price: Usd = Field(description="of the disk above the free part")
    available: bool
    stock: str | None = Field(description="in the cloud's own word")
    cpu: int
    memory: int = Field(description="GB")
    min_rootfs_size: int = Field(description="GB")
    max_rootfs_size: int = Field(description="GB")


class Rank(ReplyModel):
    """The place in an order."""

    rank: int = Field(description="from 1, best first")


# The fields of the last base come first.
class PlannedOffer(WholeOffer, Rank, needs=("rank", "product_id", "product_name", "region")):
    """An offer that would be tried."""


class RefusedOffer(WholeOffer, needs=("product_id", "region")):
    """An offer that would not be tried, and why."""

    reason: str


class PassedRegion(ReplyModel, needs=("region",)):
    """A region that was asked for and sells nothing of the kind."""

    region: str
    reason: str


class PlanReason(ReplyModel, needs=("code",)):
    """Why nothing would be rented now."""

    code: str
    message: str
    details: Mapping[str, Any] = Field(description="it depends on the code")


class EstimateBasis(ReplyModel, needs=("source",)):
    """What an estimate is made from."""

    source: Annotated[str, one_of("history", "first_guess")]
    rentals: int = Field(description="so many, of the last ones")


class HeldPlan(ReplyModel, needs=("plan_id",)):
    """A plan that is held: what is rented by it."""

    plan_id: str
    expires_at: Moment
    held_hourly_price: Usd = Field(description="the most that it may cost, of the whole instance")
    name: str
    product_names: tuple[str, ...]
    gpu_num: int
    billing_mode: BillingChoice
    lease_seconds: int | None = Field(description="if one of a length was agreed")
    instance_id: str | None = Field(description="of what was rented by it")


class Plan(ReplyModel, needs=("fits", "offers")):
    """What a create would try, best first."""

    fits: bool
    reasons: tuple[PlanReason, ...] = Field(description="if it does not fit")
    warnings: tuple[str, ...]
    product_name: str
    product_names: tuple[str, ...]
    template_id: str = Field(description="empty: an image is given instead")
    template_name: str
    template_found: bool
    image_url: str = Field(description="what would run, template and wish together")
    command: str | None
    ports: tuple[str, ...] = Field(description="as 8888/http")
    min_cuda_version: str | None
    registry_auth_id: str | None
    envs: Mapping[str, Any] = Field(
        description="names only: each value is ***, or says which secret is meant"
    )
    instead_of: Mapping[str, Any] = Field(
        description="What the template says where the wish says otherwise, by field; of variables the names."
    )
    volumes: tuple[MountedVolume, ...] = Field(description="they pin the region")
    gpu_num: int
    rootfs_size: int = Field(description="GB")
    billing_mode: BillingChoice
    fallback_after_seconds: int | None
    max_hourly_price: Usd | None
    optimize: Optimize
    regions: tuple[str, ...]
    wait_for_capacity: CapacityWait | None
    best_hourly_price: Usd | None = Field(description="of the whole instance, its disk included")
    disk_hourly_price: Usd = Field(description="of the disk above the free part")
    estimated_ready_in_seconds: Number
    estimate_basis: EstimateBasis
    offers: tuple[PlannedOffer, ...]
    refused: tuple[RefusedOffer, ...]
    regions_without_offer: tuple[PassedRegion, ...]
    plan_id: LeftOutIfNone[str] = Field(
        default=None, description="of a plan that is held: it can be rented once"
    )
    expires_at: LeftOutIfNone[Moment] = None
    held_hourly_price: LeftOutIfNone[Usd] = None

    @property
    def best(self) -> PlannedOffer | None:
        """The offer that would be tried first."""
        return self.offers[0] if self.offers else None


AttemptState = Annotated[str, one_of("sent", "bound", "rejected", "unknown", "abandoned")]
WaitingFor = Annotated[
    str,
    one_of(
        "cloud",
        "capacity",
        "creates",
        "order",
        "outcome",
        "machine",
        "application",
        "move",
        "stop",
        "removal",
    ),
]


class Sentence(ReplyModel, needs=("at", "text")):
    """One thing that happened."""

    at: Moment
    text: str
    times: int = Field(description="in a row")
    last_at: Moment | None = Field(description="the last time, of several")

    def __str__(self) -> str:
        return self.text


class RankedOffer(ReplyModel, needs=("rank", "product_id", "region")):
    """An offer that fitted, as it was on that day."""

    rank: int = Field(description="from 1, best first")
    product_id: str
    product_name: str
    region: str
    gpu_hourly_price: Usd | None = Field(description="of one GPU")
    hourly_price: Usd | None = Field(description="of the whole instance")


class RejectedOffer(ReplyModel, needs=("product_id", "region")):
    """An offer that did not fit, and why."""

    product_id: str
    product_name: str
    region: str
    gpu_hourly_price: Usd | None = Field(description="of one GPU")
    hourly_price: Usd | None = Field(description="of the whole instance")
    reason: str


class UnpricedOffer(ReplyModel, needs=("product_id", "region")):
    """An offer that did not fit while capacity was waited for, and why. Its price is not on record."""

    product_id: str
    product_name: str
    reason: str
    region: str

    @property
    def gpu_hourly_price(self) -> None:
        return None

    @property
    def hourly_price(self) -> None:
        return None


class RegionWithoutOffer(ReplyModel, needs=("region",)):
    """A region that was asked for and sells nothing of the kind."""

    region: str
    reason: str


class Considered(ReplyModel, needs=("at",)):
    """A round in which offers were weighed."""

    at: Moment
    rounds: int = Field(description="so many in a row went the same way")
    last_at: Moment = Field(description="the last of them")
    ranked: tuple[RankedOffer, ...] = Field(description="the first of them")
    refused: tuple[RejectedOffer | UnpricedOffer, ...] = Field(description="the first of them")
    ranked_total: int
    refused_total: int
    regions_without_offer: tuple[RegionWithoutOffer, ...]


class AttemptError(ReplyModel, needs=("code",)):
    """Why a create call came to nothing."""

    code: str
    message: str


class Attempt(ReplyModel, needs=("n", "state")):
    """One create call, and what became of it."""

    n: int
    tag: str = Field(description="by which the machine is recognised")
    state: AttemptState
    product_id: str
    product_name: str
    region: str
    gpu_hourly_price: Usd = Field(description="of one GPU")
    sent_at: Moment
    closed_at: Moment | None
    cloud_instance_id: str | None
    error: AttemptError | None


class Waiting(ReplyModel, needs=("what",)):
    """What is waited for now."""

    what: WaitingFor = Field(validation_alias="for", serialization_alias="for")
    sentence: str
    since: Moment
    next_try_at: Moment | None = Field(description="null while one is under way")
    until: Moment | None = Field(description="then it is given up; null: never")
    deadline: Moment = Field(description="until then it must be usable")
    position: int | None = Field(description="in line for capacity; 1 is tried next")
    ahead: int | None = Field(description="how many come first")
    last_answer: Answer | None


class StatusPhase(ReplyModel, needs=("status",)):
    """A status, and how long it lasted."""

    status: Status
    at: Moment
    seconds: Number | None = Field(description="null while it lasts")


class LineageMember(ReplyModel, needs=("instance_id",)):
    """One of the instances that take over from one another."""

    instance_id: str
    link: int = Field(description="which of them it is, from 1")
    status: Status
    usable: bool
    region: str | None
    made_for: Annotated[str, one_of("notice", "lost", "asked")] | None = Field(
        description="why it took over; null of the first"
    )
    created_at: Moment
    ready_at: Moment | None
    stopped_at: Moment | None


class Why(ReplyModel, needs=("instance_id", "name", "status", "story")):
    """The whole record of an instance, and its story in sentences, oldest first."""

    instance_id: str
    name: str
    status: Status
    status_reason: str
    usable: bool
    last_error: Failure | None
    advice: str | None = Field(description="what a person can do now")
    story: tuple[Sentence, ...]
    waits: Waiting | None
    phases: tuple[StatusPhase, ...]
    considered: tuple[Considered, ...]
    attempts: tuple[Attempt, ...]
    health: HealthReport | None
    lineage: tuple[LineageMember, ...] = Field(description="the first of them first; empty where it is alone")

    def __str__(self) -> str:
        return "\n".join(map(str, self.story))
