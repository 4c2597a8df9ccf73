"""The bodies of start, stop and delete: by id all is optional, by name the name is not."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictStr, ValidationInfo, model_validator

from gpuherd.contract.body_models import NOT_BLANK, Code, NotNull, RequestModel, Words
from gpuherd.contract.launch_models import WaitForCapacity
from gpuherd.contract.lease_models import HealthCheckBody, HealthCheckField, Port
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.entrypoints.schemas.texts import WebhookUrl
from gpuherd.usecases.instances.launch_spec_from_body import health_check_of

_NAMELESS = "must name an instance"


def _naming(value: str) -> str:
    if not value.strip():
        raise ValueError(_NAMELESS)
    return value


def _only_one(value: HealthCheckBody | None, info: ValidationInfo) -> HealthCheckBody | None:
    if value is not None and info.data.get("health_check") is not None:
        raise ValueError("or healthCheck must be given, not both")
    return value


InstanceName = Annotated[
    StrictStr,
    Field(json_schema_extra=NOT_BLANK),
    AfterValidator(_naming),
    Code("INVALID_INSTANCE_NAME"),
    Words(_NAMELESS),
]


class GoalBody(RequestModel):
    """What goes with a stop or a delete: nothing that matters."""

    instance_name: InstanceName | None = None


class GoalByNameBody(RequestModel):
    """Which instance is meant."""

    instance_name: InstanceName


class StartBody(GoalBody):
    """How to start; what is not given stays as it was."""

    webhook_url: Annotated[WebhookUrl | None, NotNull()] = None
    health_check: HealthCheckField = None
    # Another name of it.
    health_check_config: Annotated[HealthCheckField, AfterValidator(_only_one)] = None
    wait_for_capacity: Annotated[WaitForCapacity | None, Code("INVALID_WAIT_FOR_CAPACITY")] = None
    # The short form for a check of one port.
    target_port: Port | None = None

    @model_validator(mode="before")
    @classmethod
    def _port_into_check(cls, values: Any) -> Any:
        if (port := values.get("targetPort")) is None:
            return values
        field = "healthCheckConfig" if values.get("healthCheckConfig") is not None else "healthCheck"
        check = values.get(field)
        if check is not None and not isinstance(check, dict):
            return values
        # Left where it was too: it is checked inside, and once is enough.
        return {**values, "targetPort": None, field: {**(check or {}), "targetPort": port}}

    @property
    def capacity_wait_s(self) -> int:
        """How long it may wait if there is no stock now."""
        return 0 if self.wait_for_capacity is None else self.wait_for_capacity.seconds

    @property
    def check(self) -> HealthCheck | None:
        """The health check, whatever it was called."""
        return health_check_of(self.health_check or self.health_check_config)


class StartByNameBody(StartBody):
    """The same, and which instance is meant."""

    instance_name: InstanceName
