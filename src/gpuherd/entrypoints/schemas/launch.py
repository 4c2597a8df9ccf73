"""The body of a create or a plan: its fields, its limits, and a code for each thing that can be wrong."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from gpuherd.domain.access.caller import SYSTEM_CALLER, Caller
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.tag import SEPARATOR
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.health_check import HealthCheck, parse_health_check
from gpuherd.domain.instance.instance import OnFailure, Optimize, Wish
from gpuherd.domain.net.egress_policy import BlockedTarget, EgressPolicy, check_url
from gpuherd.ports.instances import IdempotencyClaim
from gpuherd.usecases.instances.launch import LaunchRequest

# A week.
CAPACITY_WAIT_MAX_S = 604_800
FIELD_CODES = {
    "name": "INVALID_INSTANCE_NAME",
    "productName": "INVALID_PRODUCT_NAME",
    "templateId": "INVALID_TEMPLATE_ID",
    "gpuNum": "INVALID_GPU_NUM",
    "rootfsSize": "INVALID_ROOTFS_SIZE",
    "region": "INVALID_REGION",
    "regions": "INVALID_REGION",
    "webhookUrl": "INVALID_WEBHOOK_URL",
    "billingMode": "INVALID_BILLING_MODE",
    "maxHourlyPrice": "INVALID_MAX_HOURLY_PRICE",
    "labels": "INVALID_LABELS",
    "optimize": "INVALID_OPTIMIZE",
    "onFailure": "INVALID_ON_FAILURE",
    "healthCheck": "INVALID_HEALTH_CHECK",
    "waitForCapacity": "INVALID_WAIT_FOR_CAPACITY",
}

TEMPLATE_ID_SCHEMA = {
    "title": "Templateid",
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": 200},
        {"type": "integer", "exclusiveMinimum": 0},
    ],
}

# The Unicode categories Cc, Cs, Zl and Zp.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _readable(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    if _CONTROL.search(value):
        raise ValueError("must not contain control characters")
    return value.strip()


def _untagged(value: str) -> str:
    if SEPARATOR in value.casefold():
        raise ValueError(f"must not contain {SEPARATOR!r}: gpuherd marks its machines with it")
    return value


def _template_id(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if value <= 0:
            raise ValueError("must be a positive number or a non-empty string")
        return str(value)
    return value


def _price(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a number of USD")  # noqa: TRY004  pydantic reports ValueError only
    return str(value)


# What `_readable` asks for, as far as a schema can say it.
NOT_BLANK: dict[str, JsonValue] = {"minLength": 1, "pattern": r"\S"}

Text = Annotated[StrictStr, Field(json_schema_extra=NOT_BLANK), AfterValidator(_readable)]
Name = Annotated[
    StrictStr,
    Field(max_length=100, json_schema_extra=NOT_BLANK),
    AfterValidator(_readable),
    AfterValidator(_untagged),
]
ShortText = Annotated[
    StrictStr, Field(max_length=200, json_schema_extra=NOT_BLANK), AfterValidator(_readable)
]
Price = Annotated[Decimal, BeforeValidator(_price), Field(gt=0, le=10_000, max_digits=12, decimal_places=5)]
LabelKey = Annotated[StrictStr, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._/-]+$")]
LabelValue = Annotated[StrictStr, Field(max_length=255), AfterValidator(lambda v: _readable(v) if v else v)]


class WaitForCapacity(BaseModel):
    """How long to wait for an offer that fits, if there is none now."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)

    seconds: Annotated[StrictInt, Field(ge=1, le=CAPACITY_WAIT_MAX_S)]


class LaunchBody(BaseModel):
    """What to rent, where, at most for how much, and whom to tell."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, hide_input_in_errors=True, title="LaunchInstance"
    )

    name: Name
    product_name: ShortText
    template_id: Annotated[ShortText, BeforeValidator(_template_id), WithJsonSchema(TEMPLATE_ID_SCHEMA)]
    gpu_num: Annotated[StrictInt, Field(ge=1, le=8)] = 1
    rootfs_size: Annotated[StrictInt, Field(ge=10, le=1000)] = 60
    region: ShortText | None = None
    regions: Annotated[list[ShortText], Field(min_length=1, max_length=50)] | None = None
    webhook_url: StrictStr | None = None
    billing_mode: BillingMode = BillingMode.SPOT
    max_hourly_price: Price | None = None
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=20)] = {}
    optimize: Optimize = Optimize.REGION
    on_failure: OnFailure = OnFailure.DELETE
    wait_for_capacity: WaitForCapacity | None = None
    # Read by the domain (`parse_health_check`), which knows its limits.
    health_check: dict[str, Any] | None = None


class PlanBody(LaunchBody):
    """The same, as a question; what it would be called does not matter."""

    model_config = ConfigDict(title="PlanLaunch")

    name: Name = "plan"


def parse_plan(body: dict[str, Any], targets: EgressPolicy, caller: Caller) -> LaunchRequest:
    """Return what a plan is asked for, or every problem that the body has."""
    return parse_launch({"name": PlanBody.model_fields["name"].default, **body}, targets, caller=caller)


def parse_launch(
    body: dict[str, Any],
    targets: EgressPolicy,
    claim: IdempotencyClaim | None = None,
    caller: Caller = SYSTEM_CALLER,
) -> LaunchRequest:
    """Return what is asked for, or every problem that the body has."""
    problems = webhook_problems(body.get("webhookUrl"), targets)
    health_check, unhealthy = read_health_check(body.get("healthCheck"), "healthCheck")
    problems += unhealthy
    try:
        parsed = LaunchBody.model_validate(body)
    except ValidationError as error:
        problems = [*map(_problem, error.errors(include_input=False, include_url=False)), *problems]
        raise InvalidRequest(problems) from None
    if problems:
        raise InvalidRequest(problems)
    return LaunchRequest(
        name=parsed.name,
        wish=Wish(
            product_name=parsed.product_name,
            template_id=parsed.template_id,
            gpu_num=parsed.gpu_num,
            disk_gb=parsed.rootfs_size,
            billing_mode=parsed.billing_mode,
            hourly_usd_max=parsed.max_hourly_price,
            optimize=parsed.optimize,
            capacity_wait_s=parsed.wait_for_capacity.seconds if parsed.wait_for_capacity else 0,
        ),
        region=parsed.region,
        regions=None if parsed.regions is None else tuple(parsed.regions),
        webhook_url=parsed.webhook_url,
        labels=parsed.labels,
        on_failure=parsed.on_failure,
        health_check=health_check,
        claim=claim,
        caller=caller,
    )


def read_health_check(value: Any, field: str) -> tuple[HealthCheck | None, list[FieldProblem]]:
    """Return the health check that is asked for, or what is wrong with it."""
    if not isinstance(value, dict):
        # Absent, or of a type that the model itself complains about.
        return None, []
    try:
        return parse_health_check(value, field), []
    except InvalidRequest as invalid:
        return None, list(invalid.problems)


def webhook_problems(url: Any, targets: EgressPolicy) -> list[FieldProblem]:
    """Return why webhooks cannot be sent there."""
    if not isinstance(url, str):
        return []
    try:
        check_url(url, targets)
    except BlockedTarget as blocked:
        return [
            FieldProblem("webhookUrl", FIELD_CODES["webhookUrl"], f"webhookUrl cannot be used: {blocked}")
        ]
    return []


def _problem(error: Any) -> FieldProblem:
    path = [str(part) for part in error["loc"]]
    field = path[0] if path else "body"
    if error["type"] == "extra_forbidden":
        return FieldProblem(field, "UNKNOWN_FIELD", f"there is no field {field!r}")
    if error["type"] == "missing":
        return FieldProblem(field, FIELD_CODES.get(field, "VALIDATION_ERROR"), f"{field} is required")
    message = str(error["msg"]).removeprefix("Value error, ")
    return FieldProblem(field, FIELD_CODES.get(field, "VALIDATION_ERROR"), f"{'.'.join(path)}: {message}")
