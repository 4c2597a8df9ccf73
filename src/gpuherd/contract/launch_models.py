"""What a user asks for when renting."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from gpuherd.contract.body_models import (
    Code,
    NotNull,
    RequestModel,
    ShortText,
    WebhookUrl,
    Words,
    plain_number,
    readable,
)
from gpuherd.contract.lease_models import AutoStopField, DeleteAfterStopped, HealthCheckField, LeaseField
from gpuherd.contract.wire_models import ReplyModel, one_of
from gpuherd.contract.workload_models import (
    Command,
    Envs,
    ImageUrl,
    MinCudaVersion,
    Ports,
    RegistryAuthId,
    Volumes,
)

BillingMode = Annotated[str, one_of("spot", "onDemand")]
# Of a wish; what is rented is one of the others.
BillingChoice = Annotated[str, one_of("spot", "onDemand", "auto")]
OnReclaim = Annotated[str, one_of("none", "replace")]
Optimize = Annotated[str, one_of("region", "price")]
OnFailure = Annotated[str, one_of("delete", "keep")]


class CapacityWait(ReplyModel):
    """How long to wait for an offer that fits, if there is none."""

    seconds: int


# Bodies

# A week.
CAPACITY_WAIT_MAX_S = 604_800


class WaitForCapacity(RequestModel):
    """How long to wait for an offer that fits, if there is none now."""

    seconds: Annotated[StrictInt, Field(ge=1, le=CAPACITY_WAIT_MAX_S)]


OnReclaimField = Annotated[Literal["none", "replace"], Code("INVALID_ON_RECLAIM")]
MaxReplacements = Annotated[
    Annotated[StrictInt, Field(ge=1, le=1000), Words("must be a whole number from 1 to 1000")] | None,
    Code("INVALID_MAX_REPLACEMENTS"),
]
Handover = Annotated[
    StrictInt,
    Field(alias="handoverSeconds", ge=0, le=3600),
    Words("must be a whole number of seconds from 0 to 3600"),
    Code("INVALID_HANDOVER"),
]

PRODUCT_NAMES_MAX = 20
# Stands before the tag in the name of a machine.
TAG_SEPARATOR = "--gh1-"
TEMPLATE_ID_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": 200},
        {"type": "integer", "exclusiveMinimum": 0},
    ],
}
# Stands for what is given beside what excludes it.
_BESIDE_ONE = object()
# Stands for a template where there is nothing to run.
_NOTHING_TO_RUN = object()


def _instead_of_one(value: Any) -> Any:
    if value is _BESIDE_ONE:
        raise ValueError("or productName must be given, not both")
    return value


def _either_field(schema: dict[str, Any]) -> None:
    """Say in the schema which fields are required instead of others."""
    # The empty default means that there is none; a body cannot say that.
    del schema["properties"]["templateId"]["default"]
    schema["properties"]["envs"]["default"] = {}
    schema["not"] = {"properties": {"templateId": False, "imageUrl": False}}
    schema["required"].remove("productName")
    if not schema["required"]:
        del schema["required"]
    # Not `oneOf`, which generators of clients take for another kind of body, and then have none for this.
    schema["if"] = {"required": ["productNames"]}
    schema["then"] = {"not": {"required": ["productName"]}}
    schema["else"] = {"required": ["productName"]}


def _different(values: list[str]) -> list[str]:
    if len({it.casefold() for it in values}) != len(values):
        raise ValueError("must not name a product twice")
    return values


def _needs_auto(value: int | None, info: ValidationInfo) -> int | None:
    if value is not None and info.data.get("billing_mode", "auto") != "auto":
        raise ValueError("needs billingMode auto")
    return value


def _untagged(value: str) -> str:
    if TAG_SEPARATOR in value.casefold():
        raise ValueError(f"must not contain {TAG_SEPARATOR!r}: gpuherd marks its machines with it")
    return value


def _without_slash(value: str) -> str:
    if "/" in value:
        raise ValueError("must not contain '/'")
    return value


def _template_id(value: Any) -> Any:
    if value is _NOTHING_TO_RUN:
        raise ValueError("must be given, or an imageUrl")
    if isinstance(value, int) and not isinstance(value, bool):
        if value <= 0:
            raise ValueError("must be a positive number or a non-empty string")
        return str(value)
    return value


Name = Annotated[
    StrictStr,
    Field(max_length=100, json_schema_extra={"minLength": 1, "pattern": r"^[^/]*[^/\s][^/]*$"}),
    AfterValidator(readable),
    AfterValidator(_untagged),
    AfterValidator(_without_slash),
    Code("INVALID_INSTANCE_NAME"),
]
TemplateId = Annotated[ShortText, BeforeValidator(_template_id), WithJsonSchema(TEMPLATE_ID_SCHEMA)]
Price = Annotated[
    Decimal, Field(gt=0, le=10_000, max_digits=12, decimal_places=5), BeforeValidator(plain_number)
]
LabelKey = Annotated[StrictStr, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._/-]+$")]
LabelValue = Annotated[StrictStr, Field(max_length=255), AfterValidator(lambda v: readable(v) if v else v)]


class LaunchBody(RequestModel):
    """What to rent, where, at most for how much, and whom to tell."""

    model_config = ConfigDict(json_schema_extra=_either_field)

    name: Name
    product_name: Annotated[ShortText, Code("INVALID_PRODUCT_NAME")]
    product_names: Annotated[
        Annotated[
            list[ShortText], Field(min_length=1, max_length=PRODUCT_NAMES_MAX), AfterValidator(_different)
        ]
        | None,
        BeforeValidator(_instead_of_one),
        NotNull(),
        Code("INVALID_PRODUCT_NAMES"),
    ] = None
    template_id: Annotated[TemplateId, Code("INVALID_TEMPLATE_ID")] = ""
    image_url: ImageUrl = None
    command: Command = None
    ports: Ports = None
    envs: Envs = Field(default_factory=dict)
    min_cuda_version: MinCudaVersion = None
    registry_auth_id: RegistryAuthId = None
    volumes: Volumes = ()
    gpu_num: Annotated[StrictInt, Field(ge=1, le=8), Code("INVALID_GPU_NUM")] = 1
    disk_gb: Annotated[StrictInt, Field(alias="rootfsSize", ge=10, le=1000), Code("INVALID_ROOTFS_SIZE")] = 60
    region: Annotated[ShortText | None, Code("INVALID_REGION")] = None
    regions: Annotated[
        Annotated[list[ShortText], Field(min_length=1, max_length=50)] | None, Code("INVALID_REGION")
    ] = None
    webhook_url: WebhookUrl | None = None
    billing_mode: Annotated[Literal["spot", "onDemand", "auto"], Code("INVALID_BILLING_MODE")] = "spot"
    fallback_after_s: Annotated[
        Annotated[StrictInt, Field(ge=0, le=CAPACITY_WAIT_MAX_S)] | None,
        Field(alias="fallbackAfterSeconds"),
        AfterValidator(_needs_auto),
        Code("INVALID_FALLBACK"),
    ] = None
    hourly_usd_max: Annotated[
        Price | None, Field(alias="maxHourlyPrice"), Code("INVALID_MAX_HOURLY_PRICE")
    ] = None
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=20), Code("INVALID_LABELS")] = Field(
        default_factory=dict
    )
    optimize: Annotated[Literal["region", "price"], Code("INVALID_OPTIMIZE")] = "region"
    on_failure: Annotated[Literal["delete", "keep"], Code("INVALID_ON_FAILURE")] = "delete"
    wait_for_capacity: Annotated[WaitForCapacity | None, Code("INVALID_WAIT_FOR_CAPACITY")] = None
    health_check: HealthCheckField = None
    lease: LeaseField = None
    auto_stop: AutoStopField = None
    delete_stopped_s: DeleteAfterStopped = None
    on_reclaim: OnReclaimField = "none"
    max_replacements: MaxReplacements = None
    handover_s: Handover = 0

    @model_validator(mode="before")
    @classmethod
    def _something_to_run(cls, values: Any) -> Any:
        if "templateId" in values or "imageUrl" in values:
            return values
        return {**values, "templateId": _NOTHING_TO_RUN}

    @model_validator(mode="before")
    @classmethod
    def _first_name(cls, values: Any) -> Any:
        if "productNames" not in values:
            return values
        if "productName" in values:
            return {**values, "productNames": _BESIDE_ONE}
        names = values["productNames"]
        # If there is none, something is wrong with the list, and that problem is reported.
        first = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
        return {**values, "productName": first.strip() or "-"}


def _or_plan(schema: dict[str, Any]) -> None:
    """Say in the schema that a held plan stands in the place of everything else."""
    _either_field(schema)
    conditions = ("required", "not", "if", "then", "else")
    otherwise = {name: schema.pop(name) for name in conditions if name in schema}
    schema.update({"if": {"required": ["planId"]}, "then": {"maxProperties": 1}, "else": otherwise})


class CreateBody(LaunchBody):
    """What to rent, where, at most for how much, and whom to tell; or `planId` alone, of a held plan.

    Only to be shown: which of the two a body is, the route sees.
    """

    model_config = ConfigDict(title="LaunchBody", json_schema_extra=_or_plan)

    plan_id: Annotated[ShortText | None, NotNull(), Code("INVALID_PLAN_ID")] = None


class PlanBody(LaunchBody):
    """The same, as a question; what it would be called does not matter."""

    name: Name = "plan"
    # Whether it shall be kept, to be rented by its id.
    hold: Annotated[StrictBool, Code("INVALID_HOLD")] = False


def _alone(value: Any) -> Any:
    if value is _BESIDE_ONE:
        raise ValueError("must stand alone: what is rented was said when it was planned")
    return value


class RentPlanBody(RequestModel):
    """A plan that is held, in the place of everything else."""

    plan_id: Annotated[
        ShortText,
        BeforeValidator(_alone),
        Words("must be the planId of a held plan"),
        Code("INVALID_PLAN_ID"),
    ]

    @model_validator(mode="before")
    @classmethod
    def _nothing_beside(cls, values: Any) -> Any:
        return {"planId": values["planId"] if len(values) == 1 else _BESIDE_ONE}
