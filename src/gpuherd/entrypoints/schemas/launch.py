"""The body of a create or a plan: its fields, their limits, and a code for each thing that can be wrong."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from enum import StrEnum
from operator import itemgetter
from typing import Annotated, Any

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
from gpuherd.contract.launch_models import (
    CAPACITY_WAIT_MAX_S,
    Handover,
    MaxReplacements,
    OnReclaimField,
    WaitForCapacity,
)
from gpuherd.contract.lease_models import AutoStopField, DeleteAfterStopped, HealthCheckField, LeaseField
from gpuherd.domain.api_key import SYSTEM_CALLER, Caller
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.launch_spec import LaunchSpec, OnFailure, Optimize
from gpuherd.domain.instance.lease import NO_TERMS, Terms
from gpuherd.domain.instance.lineage import OnReclaim
from gpuherd.domain.instance.offer_ranking import AUTO
from gpuherd.domain.instance.plan import HeldPlan
from gpuherd.domain.instance.rent_attempt import SEPARATOR
from gpuherd.entrypoints.schemas.workload import (
    Command,
    Envs,
    ImageUrl,
    MinCudaVersion,
    Ports,
    RegistryAuthId,
    Volumes,
)
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from gpuherd.usecases.instances.launch_spec_from_body import (
    health_check_of,
    idleness_of,
    lease_of,
    silence_of,
)

PRODUCT_NAMES_MAX = 20
FALLBACK_AFTER_S = 600
TEMPLATE_ID_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": 200},
        {"type": "integer", "exclusiveMinimum": 0},
    ],
}


class BillingChoice(StrEnum):
    """How to pay: as one of the modes, or spot first and on demand after a while."""

    SPOT = BillingMode.SPOT.value
    ON_DEMAND = BillingMode.ON_DEMAND.value
    AUTO = AUTO


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
    # An empty one means that there is none, and nobody can say that.
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
    if value is not None and info.data.get("billing_mode", BillingChoice.AUTO) is not BillingChoice.AUTO:
        raise ValueError("needs billingMode auto")
    return value


def _untagged(value: str) -> str:
    if SEPARATOR in value.casefold():
        raise ValueError(f"must not contain {SEPARATOR!r}: gpuherd marks its machines with it")
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
    """What to rent, where, at most for how much, and whom to tell.

    A field that is called as in the `Wish` or the `LaunchRequest` gets there by itself.
    """

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
    envs: Envs = ()
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
    billing_mode: Annotated[BillingChoice, Code("INVALID_BILLING_MODE")] = BillingChoice.SPOT
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
    optimize: Annotated[Optimize, Code("INVALID_OPTIMIZE")] = Optimize.REGION
    on_failure: Annotated[OnFailure, Code("INVALID_ON_FAILURE")] = OnFailure.DELETE
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
        # Where it is none, something is wrong with the list, and that is what is told.
        first = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
        return {**values, "productName": first.strip() or "-"}

    def to_request(
        self,
        *,
        claim: IdempotencyClaim | None = None,
        caller: Caller = SYSTEM_CALLER,
        plan: HeldPlan | None = None,
    ) -> LaunchRequest:
        """Return what is asked for."""
        said, wait = self.__dict__, self.wait_for_capacity
        names = tuple(self.product_names or ())
        return LaunchRequest(
            wish=LaunchSpec(
                product_names=names,
                billing_mode=BILLING_MODES[self.billing_mode],
                fallback_after_s=self._fallback_after_s(),
                capacity_wait_s=0 if wait is None else wait.seconds,
                **dict(zip(WISH_FIELDS, _wish_values(said), strict=True)),
            ),
            regions=None if self.regions is None else tuple(self.regions),
            health_check=health_check_of(self.health_check),
            terms=self._terms(),
            on_reclaim=OnReclaim(self.on_reclaim),
            claim=claim,
            caller=caller,
            plan=plan,
            **dict(zip(REQUEST_FIELDS, _request_values(said), strict=True)),
        )

    def _fallback_after_s(self) -> int | None:
        if self.billing_mode is not BillingChoice.AUTO:
            return None
        return FALLBACK_AFTER_S if self.fallback_after_s is None else self.fallback_after_s

    def _terms(self) -> Terms:
        lease, auto_stop = self.lease, self.auto_stop
        if lease is None and auto_stop is None and self.delete_stopped_s is None:
            return NO_TERMS
        return Terms(
            lease_of(lease),
            silence_of(auto_stop),
            idleness_of(auto_stop),
            self.delete_stopped_s,
        )


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


# These have another shape here than inside.
RESHAPED_FIELDS = (
    *("product_names", "regions", "billing_mode", "fallback_after_s", "wait_for_capacity"),
    *("health_check", "lease", "auto_stop", "delete_stopped_s", "on_reclaim"),
)
BILLING_MODES = {
    BillingChoice.SPOT: BillingMode.SPOT,
    BillingChoice.ON_DEMAND: BillingMode.ON_DEMAND,
    BillingChoice.AUTO: BillingMode.SPOT,
}
_PLAIN = [it for it in LaunchBody.model_fields if it not in RESHAPED_FIELDS]
REQUEST_FIELDS = [it for it in _PLAIN if it in {each.name for each in fields(LaunchRequest)}]
# The rest, so that a field that nobody takes is an error and not forgotten.
WISH_FIELDS = [it for it in _PLAIN if it not in REQUEST_FIELDS]
assert set(WISH_FIELDS) <= {it.name for it in fields(LaunchSpec)}
_request_values, _wish_values = itemgetter(*REQUEST_FIELDS), itemgetter(*WISH_FIELDS)
