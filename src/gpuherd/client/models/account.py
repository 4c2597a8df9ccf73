"""The account as a whole: what is sold, what runs, what nobody has, and how the server is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuherd.client.models.base import ApiModel
from gpuherd.client.models.instance import Instance


@dataclass(frozen=True, kw_only=True)
class Offer(ApiModel):
    """A product in one region. Prices are USD an hour for one GPU."""

    region: str
    cluster_id: str | None = None
    available: bool = False
    stock: str | None = None
    gpu_hourly_price: Decimal | None = None
    spot_price: Decimal | None = None
    on_demand_price: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class Product(ApiModel):
    """What can be rented, with the cheapest region first."""

    product_id: str
    product_name: str
    billing_mode: str | None = None
    available: bool = False
    gpu_hourly_price: Decimal | None = None
    cpu_per_gpu: int | None = None
    memory_per_gpu: int | None = None
    regions: tuple[Offer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TemplatePort(ApiModel):
    """A port that a template opens."""

    port: int
    type: str = ""


@dataclass(frozen=True, kw_only=True)
class Template(ApiModel):
    """What runs on a machine; `problem` says why nothing can be started from it, if so."""

    id: str
    name: str = ""
    image_url: str | None = None
    ports: tuple[TemplatePort, ...] = ()
    env_names: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Region(ApiModel):
    """A place, under all the names that it answers to."""

    code: str
    label: str | None = None
    cluster_id: str | None = None
    gpu_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Listed(ApiModel):
    """An instance, a machine, or both as one: `source` is local, novita or merged."""

    name: str
    source: str
    id: str | None = None
    status: str | None = None
    ownership: str | None = None
    local_status: str | None = None
    cloud_status: str | None = None
    consistency: str | None = None
    consistency_reason: str | None = None
    cloud_instance_id: str | None = None
    product_name: str | None = None
    region: str | None = None
    gpu_num: int | None = None
    hourly_price: Decimal | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Comprehensive(ApiModel):
    """Everything that gpuherd remembers and everything on the account, merged."""

    instances: tuple[Listed, ...]
    total: int = 0
    sources: Mapping[str, int] = field(default_factory=dict, hash=False)
    stale: bool = False
    note: str | None = None
    synced: bool = False


@dataclass(frozen=True, kw_only=True)
class Sync(ApiModel):
    """What one look at the cloud has found."""

    listed: int
    complete: bool = False
    witness: str | None = None
    changed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Orphan(ApiModel):
    """A machine on the account that no instance has."""

    cloud_id: str
    verdict: str
    name: str = ""
    reason: str | None = None
    instance_id: str | None = None
    status: str | None = None
    product_name: str | None = None
    region: str | None = None
    gpu_num: int | None = None
    billing_mode: str | None = None
    hourly_price: Decimal | None = None
    cost_so_far: Decimal | None = None
    age_s: int | None = field(default=None, metadata={"key": "ageSeconds"})
    created_at: datetime | None = None
    first_seen_at: datetime | None = None
    order: str | None = None
    ordered_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Orphans(ApiModel):
    """All orphans, and what they cost an hour. `braked` says why none is removed by itself, if so."""

    orphans: tuple[Orphan, ...]
    total: int = 0
    hourly_price: Decimal | None = None
    braked: str | None = None


@dataclass(frozen=True, kw_only=True)
class Health(ApiModel):
    """How the server is: healthy, degraded or unhealthy."""

    status: str
    dependencies: Mapping[str, Any] = field(default_factory=dict, hash=False)
    creates_blocked: str | None = None
    collector_braked: str | None = None
    timestamp: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class WebhookEvent(ApiModel):
    """A webhook whose signature was good. `instance` is None where it is about the account."""

    type: str
    timestamp: datetime
    id: str = ""
    sequence: int | None = None
    instance: Instance | None = None
