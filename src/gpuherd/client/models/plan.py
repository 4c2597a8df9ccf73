"""Plans: what a create would do, before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from gpuherd.client.models.base import ApiModel


@dataclass(frozen=True, kw_only=True)
class PlannedOffer(ApiModel):
    """An offer that would be tried. `hourly_price`, `cpu` and `memory` (GB) are of the whole instance."""

    rank: int
    product_id: str
    product_name: str
    region: str
    hourly_price: Decimal | None = None
    gpu_hourly_price: Decimal | None = None
    available: bool = False
    stock: str | None = None
    cpu: int | None = None
    memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class RefusedOffer(ApiModel):
    """An offer that would not be tried, and why."""

    product_id: str
    region: str
    reason: str = ""
    product_name: str | None = None
    hourly_price: Decimal | None = None
    gpu_hourly_price: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class PlanReason(ApiModel):
    """Why nothing would be rented now."""

    code: str
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class EstimateBasis(ApiModel):
    """What an estimate is made from: `history` with so many rentals, or `first_guess`."""

    source: str
    rentals: int = 0


@dataclass(frozen=True, kw_only=True)
class Plan(ApiModel):
    """What a create would try, best first; if it does not fit, `reasons` tell why."""

    fits: bool
    offers: tuple[PlannedOffer, ...]
    refused: tuple[RefusedOffer, ...] = ()
    reasons: tuple[PlanReason, ...] = ()
    warnings: tuple[str, ...] = ()
    product_name: str | None = None
    gpu_num: int | None = None
    billing_mode: str | None = None
    best_hourly_price: Decimal | None = None
    estimated_ready_in_seconds: float | None = None
    estimate_basis: EstimateBasis | None = None
    wait_for_capacity: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def best(self) -> PlannedOffer | None:
        """The offer that would be tried first."""
        return self.offers[0] if self.offers else None
