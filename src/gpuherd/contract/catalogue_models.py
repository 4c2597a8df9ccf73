"""What can be rented, and what can run on it: products, templates, regions, volumes, prewarms."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StrictInt

from gpuherd.contract.body_models import (
    Code,
    NotNull,
    RequestModel,
    ShortText,
    Words,
    has_control_characters,
)
from gpuherd.contract.launch_models import BillingMode
from gpuherd.contract.wire_models import Moment, ReplyModel, Usd, one_of
from gpuherd.contract.workload_models import ImageText, RegistryAuthId


class Offer(ReplyModel, needs=("region",)):
    """A product in one region. Prices are USD an hour for one GPU."""

    region: str
    cluster_id: str
    available: bool
    stock: str = Field(description="in the cloud's own word")
    gpu_hourly_price: Usd | None = Field(description="in the billing mode that was asked for")
    spot_price: Usd | None
    on_demand_price: Usd | None


class Product(ReplyModel, needs=("product_id", "product_name")):
    """What can be rented, with the cheapest region first."""

    product_id: str
    product_name: str
    billing_mode: BillingMode
    available: bool
    gpu_hourly_price: Usd | None = Field(description="the lowest, USD an hour for one GPU")
    cpu_per_gpu: int
    memory_per_gpu: int = Field(description="GB")
    min_rootfs_size: int = Field(description="GB")
    max_rootfs_size: int = Field(description="GB")
    regions: tuple[Offer, ...]


class Products(ReplyModel):
    """All products."""

    products: tuple[Product, ...]
    total: int


class TemplatePort(ReplyModel, needs=("port",)):
    """A port that a template opens."""

    port: int
    type: str = Field(description="http, https or tcp")


class Template(ReplyModel, needs=("id",)):
    """What runs on a machine. Values of variables and commands stay out: people keep tokens in both."""

    id: str
    template_id: str = Field(description="the same as `id`")
    name: str
    image_url: str
    registry_auth_id: str | None
    ports: tuple[TemplatePort, ...]
    env_names: tuple[str, ...]
    channel: str | None
    problem: str | None = Field(description="why no machine can be started from it, if so")


class Templates(ReplyModel):
    """All templates that the Novita key may use."""

    templates: tuple[Template, ...]
    total: int


class RegistryAuth(ReplyModel, needs=("id", "name")):
    """A registry credential of the account. Its password is with the cloud, and never comes back."""

    id: str
    name: str
    username: str


class RegistryAuthList(ReplyModel, needs=("registry_auths",)):
    """All registry credentials of the account, by name."""

    registry_auths: tuple[RegistryAuth, ...]
    total: int


class Region(ReplyModel, needs=("code",)):
    """A place, under all the names that it answers to."""

    code: str
    label: str
    cluster_id: str
    gpu_names: tuple[str, ...]


class Regions(ReplyModel):
    """All regions."""

    regions: tuple[Region, ...]
    total: int


class Volume(ReplyModel, needs=("id", "name", "region")):
    """A volume of the account. It costs money whether a machine has it or not."""

    id: str
    name: str
    region: str = Field(description="only machines there can mount it")
    size_gb: int
    hourly_price: Usd


class VolumeList(ReplyModel, needs=("volumes",)):
    """All volumes of the account, by name."""

    volumes: tuple[Volume, ...]
    total: int
    hourly_total: Usd


class VolumeRemoved(ReplyModel):
    """A volume that is no more."""

    id: str
    removed: bool


PrewarmState = Annotated[str, one_of("pending", "running", "succeeded", "failed", "unknown")]


class PrewarmProduct(ReplyModel, needs=("product_id",)):
    """A product on whose hosts the image is to be."""

    product_id: str
    product_name: str


class Prewarm(ReplyModel, needs=("id", "image_url", "region", "state")):
    """A task that pulls an image into a region before a machine needs it."""

    id: str
    image_url: str
    region: str
    state: PrewarmState
    products: tuple[PrewarmProduct, ...] = Field(description="none: everything that is rented in the region")
    registry_auth_id: str | None
    size_bytes: int | None = Field(description="as soon as it is known")
    note: str | None
    reasons: tuple[str, ...] = Field(description="why it failed")
    created_at: Moment | None
    completed_at: Moment | None


class PrewarmQuota(ReplyModel, needs=("used", "limit")):
    """How many tasks the account has and may have; finished ones count until they are deleted."""

    used: int
    limit: int
    per_image_gb: int


class PrewarmList(ReplyModel, needs=("prewarms", "quota")):
    """The prewarm tasks of the account, newest first."""

    prewarms: tuple[Prewarm, ...]
    total: int
    quota: PrewarmQuota


class PrewarmRemoved(ReplyModel):
    """A prewarm task that is no more."""

    id: str
    removed: bool


# Bodies


class VolumeBody(RequestModel):
    """A network volume to make."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    name: Annotated[ShortText, Code("INVALID_NAME"), Words("must be a text of 1 to 200 characters")]
    region: Annotated[
        ShortText, Code("INVALID_REGION"), Words("must be a region, like one of GET /api/regions")
    ]
    size_gb: Annotated[
        Annotated[StrictInt, Field(ge=10, le=4096)],
        Code("INVALID_SIZE_GB"),
        Words("must be a whole number of GB from 10 to 4096"),
    ]


def _password(value: str) -> str:
    if has_control_characters(value):
        raise ValueError("must not contain control characters")
    return value


PREWARM_PRODUCTS_MAX = 20


class PrewarmBody(RequestModel):
    """An image to pull into a region."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"

    image_url: Annotated[ImageText, Code("INVALID_IMAGE")]
    region: Annotated[
        ShortText, Code("INVALID_REGION"), Words("must be a region, like one of GET /api/regions")
    ]
    registry_auth_id: RegistryAuthId = None
    products: Annotated[
        Annotated[tuple[ShortText, ...], Field(max_length=PREWARM_PRODUCTS_MAX)] | None,
        NotNull(),
        Code("INVALID_PRODUCTS"),
        Words(f"must be a list of up to {PREWARM_PRODUCTS_MAX} products, each by its id or name"),
    ] = None
    note: Annotated[
        ShortText | None, NotNull(), Code("INVALID_NOTE"), Words("must be a text of 1 to 200 characters")
    ] = None
