"""The body of a create or a plan: its fields, their limits, and a code for each thing that can be wrong."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, StrictStr, WithJsonSchema

from gpuherd.domain.access.caller import SYSTEM_CALLER, Caller
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.tag import SEPARATOR
from gpuherd.domain.endings.terms import NO_TERMS, Terms
from gpuherd.domain.instance.instance import OnFailure, Optimize, Wish
from gpuherd.entrypoints.schemas.endings import AutoStopField, DeleteAfterStopped, LeaseField
from gpuherd.entrypoints.schemas.health_check import HealthCheckField
from gpuherd.entrypoints.schemas.request_model import Code, RequestModel
from gpuherd.entrypoints.schemas.texts import NOT_BLANK, ShortText, WebhookUrl, plain_number, readable
from gpuherd.ports.access import IdempotencyClaim
from gpuherd.usecases.instances.launch import LaunchRequest

# A week.
CAPACITY_WAIT_MAX_S = 604_800
TEMPLATE_ID_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": 200},
        {"type": "integer", "exclusiveMinimum": 0},
    ],
}


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


Name = Annotated[
    StrictStr,
    Field(max_length=100, json_schema_extra=NOT_BLANK),
    AfterValidator(readable),
    AfterValidator(_untagged),
    Code("INVALID_INSTANCE_NAME"),
]
TemplateId = Annotated[ShortText, BeforeValidator(_template_id), WithJsonSchema(TEMPLATE_ID_SCHEMA)]
Price = Annotated[
    Decimal, Field(gt=0, le=10_000, max_digits=12, decimal_places=5), BeforeValidator(plain_number)
]
LabelKey = Annotated[StrictStr, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._/-]+$")]
LabelValue = Annotated[StrictStr, Field(max_length=255), AfterValidator(lambda v: readable(v) if v else v)]


class WaitForCapacity(RequestModel):
    """How long to wait for an offer that fits, if there is none now."""

    seconds: Annotated[StrictInt, Field(ge=1, le=CAPACITY_WAIT_MAX_S)]


class LaunchBody(RequestModel):
    """What to rent, where, at most for how much, and whom to tell.

    A field that is called as in the `Wish` or the `LaunchRequest` gets there by itself.
    """

    name: Name
    product_name: Annotated[ShortText, Code("INVALID_PRODUCT_NAME")]
    template_id: Annotated[TemplateId, Code("INVALID_TEMPLATE_ID")]
    gpu_num: Annotated[StrictInt, Field(ge=1, le=8), Code("INVALID_GPU_NUM")] = 1
    disk_gb: Annotated[StrictInt, Field(alias="rootfsSize", ge=10, le=1000), Code("INVALID_ROOTFS_SIZE")] = 60
    region: Annotated[ShortText | None, Code("INVALID_REGION")] = None
    regions: Annotated[
        Annotated[list[ShortText], Field(min_length=1, max_length=50)] | None, Code("INVALID_REGION")
    ] = None
    webhook_url: WebhookUrl | None = None
    billing_mode: Annotated[BillingMode, Code("INVALID_BILLING_MODE")] = BillingMode.SPOT
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

    def to_request(
        self, *, claim: IdempotencyClaim | None = None, caller: Caller = SYSTEM_CALLER
    ) -> LaunchRequest:
        """Return what is asked for."""
        said, wait, check = self.__dict__, self.wait_for_capacity, self.health_check
        return LaunchRequest(
            wish=Wish(
                capacity_wait_s=0 if wait is None else wait.seconds,
                **{name: said[name] for name in WISH_FIELDS},
            ),
            regions=None if self.regions is None else tuple(self.regions),
            health_check=None if check is None else check.to_domain(),
            terms=self._terms(),
            claim=claim,
            caller=caller,
            **{name: said[name] for name in REQUEST_FIELDS},
        )

    def _terms(self) -> Terms:
        lease, auto_stop = self.lease, self.auto_stop
        if lease is None and auto_stop is None and self.delete_stopped_s is None:
            return NO_TERMS
        return Terms(
            None if lease is None else lease.to_domain(),
            None if auto_stop is None else auto_stop.silence(),
            None if auto_stop is None else auto_stop.idleness(),
            self.delete_stopped_s,
        )


class PlanBody(LaunchBody):
    """The same, as a question; what it would be called does not matter."""

    name: Name = "plan"


# These have another shape here than inside.
RESHAPED_FIELDS = ("regions", "wait_for_capacity", "health_check", "lease", "auto_stop", "delete_stopped_s")
_PLAIN = [it for it in LaunchBody.model_fields if it not in RESHAPED_FIELDS]
REQUEST_FIELDS = [it for it in _PLAIN if it in {each.name for each in fields(LaunchRequest)}]
# The rest, so that a field that nobody takes is an error and not forgotten.
WISH_FIELDS = [it for it in _PLAIN if it not in REQUEST_FIELDS]
assert set(WISH_FIELDS) <= {it.name for it in fields(Wish)}
