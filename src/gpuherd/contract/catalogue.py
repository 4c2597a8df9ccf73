"""What can be rented, and what can run on it."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from gpuherd.contract.codec.model import Model
from gpuherd.contract.codec.values import OneOf
from gpuherd.contract.instance import BillingMode


class Offer(Model, needs=("region",)):
    """A product in one region. Prices are USD an hour for one GPU."""

    region: str
    cluster_id: str
    available: bool
    stock: str  # in the cloud's own word
    gpu_hourly_price: Decimal | None  # in the billing mode that was asked for
    spot_price: Decimal | None
    on_demand_price: Decimal | None


class Product(Model, needs=("product_id", "product_name")):
    """What can be rented, with the cheapest region first."""

    product_id: str
    product_name: str
    billing_mode: BillingMode
    available: bool
    gpu_hourly_price: Decimal | None  # the lowest, USD an hour for one GPU
    cpu_per_gpu: int
    memory_per_gpu: int  # GB
    min_rootfs_size: int  # GB
    max_rootfs_size: int  # GB
    regions: tuple[Offer, ...]


class Products(Model):
    """All products."""

    products: tuple[Product, ...]
    total: int


class TemplatePort(Model, needs=("port",)):
    """A port that a template opens."""

    port: int
    type: str  # http, https or tcp


class Template(Model, needs=("id",)):
    """What runs on a machine. Values of variables and commands stay out: people keep tokens in both."""

    id: str
    template_id: str  # the same as `id`
    name: str
    image_url: str
    registry_auth_id: str | None
    ports: tuple[TemplatePort, ...]
    env_names: tuple[str, ...]
    channel: str | None
    problem: str | None  # why no machine can be started from it, if so


class Templates(Model):
    """All templates that the Novita key may use."""

    templates: tuple[Template, ...]
    total: int


class TemplateRemoved(Model):
    """A template that is no more."""

    id: str
    removed: bool


class RegistryAuth(Model, needs=("id", "name")):
    """A registry credential of the account. Its password is with the cloud, and never comes back."""

    id: str
    name: str
    username: str


class RegistryAuthList(Model, needs=("registry_auths",)):
    """All registry credentials of the account, by name."""

    registry_auths: tuple[RegistryAuth, ...]
    total: int


class RegistryAuthRemoved(Model):
    """A registry credential that is no more."""

    id: str
    removed: bool


class Region(Model, needs=("code",)):
    """A place, under all the names that it answers to."""

    code: str
    label: str
    cluster_id: str
    gpu_names: tuple[str, ...]


class Regions(Model):
    """All regions."""

    regions: tuple[Region, ...]
    total: int


class Volume(Model, needs=("id", "name", "region")):
    """A volume of the account. It costs money whether a machine has it or not."""

    id: str
    name: str
    region: str  # only machines there can mount it
    size_gb: int
    hourly_price: Decimal


class VolumeList(Model, needs=("volumes",)):
    """All volumes of the account, by name."""

    volumes: tuple[Volume, ...]
    total: int
    hourly_total: Decimal


class VolumeRemoved(Model):
    """A volume that is no more."""

    id: str
    removed: bool


PrewarmState = Annotated[str, OneOf(("pending", "running", "succeeded", "failed", "unknown"))]


class PrewarmProduct(Model, needs=("product_id",)):
    """A product on whose hosts the image is to be."""

    product_id: str
    product_name: str


class Prewarm(Model, needs=("id", "image_url", "region", "state")):
    """A task that pulls an image into a region before a machine needs it."""

    id: str
    image_url: str
    region: str
    state: PrewarmState
    products: tuple[PrewarmProduct, ...]  # none: everything that is rented in the region
    registry_auth_id: str | None
    size_bytes: int | None  # as soon as it is known
    note: str | None
    reasons: tuple[str, ...]  # why it failed
    created_at: datetime | None
    completed_at: datetime | None


class PrewarmQuota(Model, needs=("used", "limit")):
    """How many tasks the account has and may have; finished ones count until they are deleted."""

    used: int
    limit: int
    per_image_gb: int


class PrewarmList(Model, needs=("prewarms", "quota")):
    """The prewarm tasks of the account, newest first."""

    prewarms: tuple[Prewarm, ...]
    total: int
    quota: PrewarmQuota


class PrewarmRemoved(Model):
    """A prewarm task that is no more."""

    id: str
    removed: bool
