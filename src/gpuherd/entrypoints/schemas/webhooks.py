"""The bodies of `/api/webhooks/…`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StrictStr, ValidationInfo

from gpuherd.domain.instance.events import ENDPOINT_WEBHOOK_TYPES
from gpuherd.entrypoints.schemas.request_model import Code, RequestModel, Words
from gpuherd.entrypoints.schemas.texts import Label, Moment, Text, WebhookUrl
from gpuherd.ports.webhooks import DeliveryFilter

_TYPES = sorted(ENDPOINT_WEBHOOK_TYPES)
_EVENTS = f"must be a list of some of these types: {', '.join(_TYPES)}"


def _known_types(value: list[str]) -> list[str]:
    if not ENDPOINT_WEBHOOK_TYPES.issuperset(value):
        raise ValueError(_EVENTS)
    return sorted(set(value))


def _one_target(url: str | None, info: ValidationInfo) -> str | None:
    if "endpoint_id" in info.data and (url is None) == (info.data["endpoint_id"] is None):
        raise ValueError("or endpointId must be given, not both")
    return url


EndpointId = Annotated[Text, Code("INVALID_ENDPOINT_ID")]
EventTypes = Annotated[
    list[StrictStr],
    Field(min_length=1, json_schema_extra={"items": {"type": "string", "enum": [*_TYPES]}}),
    AfterValidator(_known_types),
]


class WebhooksBody(RequestModel):
    """What these bodies have in common."""

    unknown_field: ClassVar[str] = "there is no field {path!r} here"


class EndpointBody(WebhooksBody):
    """An endpoint as somebody wants it; without `events` it hears of all."""

    url: Annotated[WebhookUrl, Words("must be a text that is not blank")]
    events: Annotated[EventTypes | None, Code("INVALID_EVENTS"), Words(_EVENTS)] = None
    label: Label | None = None


class ReplayBody(WebhooksBody):
    """What to send again."""

    since: Annotated[
        Moment,
        Code("INVALID_SINCE"),
        Words("must be a time in ISO 8601, like 2026-01-31T12:00:00Z"),
    ]
    state: Annotated[
        Literal[DeliveryFilter.FAILED, DeliveryFilter.DEAD],
        Code("INVALID_STATE"),
        Words("must be failed or dead"),
    ] = DeliveryFilter.FAILED
    endpoint_id: EndpointId | None = None


class WebhookTestBody(WebhooksBody):
    """Where to send a test: to a URL, or to an endpoint with its own secret."""

    endpoint_id: EndpointId | None = None
    url: Annotated[WebhookUrl | None, AfterValidator(_one_target)] = Field(None, validate_default=True)
