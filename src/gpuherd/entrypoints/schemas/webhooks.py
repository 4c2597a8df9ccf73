"""The bodies of `/api/webhooks/…`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StrictStr, ValidationInfo

from gpuherd.contract.body_models import Code, Label, Moment, RequestModel, Text, Words
from gpuherd.domain.egress_policy import BlockedTarget, EgressPolicy
from gpuherd.domain.instance.instance_event import ENDPOINT_WEBHOOK_TYPES
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind, check_target
from gpuherd.entrypoints.schemas.texts import WebhookUrl
from gpuherd.ports.webhook_port import DeliveryFilter

_TYPES = sorted(ENDPOINT_WEBHOOK_TYPES)
_EVENTS = f"must be a list of some of these types: {', '.join(_TYPES)}"

_KINDS = f"must be one of {', '.join(EndpointKind)}"


def _known_types(value: list[str]) -> list[str]:
    if not ENDPOINT_WEBHOOK_TYPES.issuperset(value):
        raise ValueError(_EVENTS)
    return sorted(set(value))


def _usable_target(value: str, info: ValidationInfo) -> str:
    assert isinstance(info.context, EgressPolicy)
    if "kind" not in info.data:
        # It is refused in any case, and nobody knows by which rules to judge the address.
        return value
    try:
        return check_target(info.data["kind"], value, info.context)
    except BlockedTarget as blocked:
        raise ValueError(f"cannot be used: {blocked}") from None


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
    """An endpoint as somebody wants it.

    Without `events` it hears of all if it is a webhook, else of what people want to be told.
    """

    # Before the address, which is judged by it.
    kind: Annotated[EndpointKind, Code("INVALID_KIND"), Words(_KINDS)] = EndpointKind.WEBHOOK
    # Of Slack, Discord and ntfy the address that they give you; for mail `mailto:` and an address.
    url: Annotated[
        StrictStr,
        AfterValidator(_usable_target),
        Code("INVALID_WEBHOOK_URL"),
        Words("must be a text that is not blank"),
    ]
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
