"""Plans: what a create would do, before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from gpuherd.contract.codec.model import Model
from gpuherd.contract.codec.values import LeftOut, OneOf
from gpuherd.contract.instance import BillingChoice, BillingMode, CapacityWait, MountedVolume, Optimize


class WholeOffer(Model):
    """An offer as it would be rented: CPUs and memory are of the whole instance."""

    product_id: str
    product_name: str
    region: str
    billing_mode: BillingMode
    hourly_price: Decimal | None  # of the whole instance, its disk included
    gpu_hourly_price: Decimal | None  # of one GPU
    disk_hourly_price: Decimal  # of the disk above the free part
    available: bool
    stock: str | None  # in the cloud's own word
    cpu: int
    memory: int  # GB
    min_rootfs_size: int  # GB
    max_rootfs_size: int  # GB


class Rank(Model):
    """The place in an order."""

    rank: int  # from 1, best first


# The fields of the last base come first.
class PlannedOffer(WholeOffer, Rank, needs=("rank", "product_id", "product_name", "region")):
    """An offer that would be tried."""


class RefusedOffer(WholeOffer, needs=("product_id", "region")):
    """An offer that would not be tried, and why."""

    reason: str


class PassedRegion(Model, needs=("region",)):
    """A region that was asked for and sells nothing of the kind."""

    region: str
    reason: str


class PlanReason(Model, needs=("code",)):
    """Why nothing would be rented now."""

    code: str
    message: str
    details: Mapping[str, Any]  # it depends on the code


class EstimateBasis(Model, needs=("source",)):
    """What an estimate is made from."""

    source: Annotated[str, OneOf(("history", "first_guess"))]
    rentals: int  # so many, of the last ones


class HeldPlan(Model, needs=("plan_id",)):
    """A plan that is held: what is rented by it."""

    plan_id: str
    expires_at: datetime
    held_hourly_price: Decimal  # the most that it may cost, of the whole instance
    name: str
    product_names: tuple[str, ...]
    gpu_num: int
    billing_mode: BillingChoice
    lease_seconds: int | None  # if one of a length was agreed
    instance_id: str | None  # of what was rented by it


class Plan(Model, needs=("fits", "offers")):
    """What a create would try, best first."""

    fits: bool
    reasons: tuple[PlanReason, ...]  # if it does not fit
    warnings: tuple[str, ...]
    product_name: str
    product_names: tuple[str, ...]
    template_id: str  # empty: an image is given instead
    template_name: str
    template_found: bool
    image_url: str  # what would run, template and wish together
    command: str | None
    ports: tuple[str, ...]  # as 8888/http
    min_cuda_version: str | None
    registry_auth_id: str | None
    envs: Mapping[str, Any]  # names only: each value is ***, or says which secret is meant
    # What the template says where the wish says otherwise, by field; of variables the names.
    instead_of: Mapping[str, Any]
    volumes: tuple[MountedVolume, ...]  # they pin the region
    gpu_num: int
    rootfs_size: int  # GB
    billing_mode: BillingChoice
    fallback_after_seconds: int | None
    max_hourly_price: Decimal | None
    optimize: Optimize
    regions: tuple[str, ...]
    wait_for_capacity: CapacityWait | None
    best_hourly_price: Decimal | None  # of the whole instance, its disk included
    disk_hourly_price: Decimal  # of the disk above the free part
    estimated_ready_in_seconds: float
    estimate_basis: EstimateBasis
    offers: tuple[PlannedOffer, ...]
    refused: tuple[RefusedOffer, ...]
    regions_without_offer: tuple[PassedRegion, ...]
    # Of a plan that is held: it can be rented once, until then, for at most so much.
    plan_id: Annotated[str | None, LeftOut()] = None
    expires_at: Annotated[datetime | None, LeftOut()] = None
    held_hourly_price: Annotated[Decimal | None, LeftOut()] = None

    @property
    def best(self) -> PlannedOffer | None:
        """The offer that would be tried first."""
        return self.offers[0] if self.offers else None
