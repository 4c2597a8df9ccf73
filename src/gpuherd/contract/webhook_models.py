"""Events and webhooks: the log, who gets them, what became of each delivery, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, StrictStr, ValidationInfo

from gpuherd.contract.body_models import Code, Label, RequestModel, Text, WebhookUrl, Words, checked_target
from gpuherd.contract.body_models import Moment as GivenMoment
from gpuherd.contract.instance_models import InstanceRecord
from gpuherd.contract.money_models import BalanceNotice, BudgetNotice, DriftNotice, PriceNotice
from gpuherd.contract.service_models import OrphanNotice, Verdict
from gpuherd.contract.wire_models import LeftOutIfNone, Moment, Number, ReplyModel, Usd, one_of


class Event(ReplyModel, needs=("sequence", "type", "at")):
    """One fact of an instance's history."""

    sequence: int = Field(description="counts the events of one instance, from 1")
    type: str
    at: Moment
    actor: str = Field(description="the id of a key, or `gpuherd`")
    reason: str
    before: str | None = Field(description="the status before, where it changed")
    after: str | None = Field(description="the status after, where it changed")
    details: Mapping[str, Any] = Field(description="it depends on the type")


class EventHistory(ReplyModel):
    """What happened to one instance, oldest first."""

    events: tuple[Event, ...]


class EventPlace(ReplyModel):
    """Where an event stands in the log of all, and whose it is."""

    id: int
    instance_id: str | None = Field(description="null where it concerns the account as a whole")
    name: str | None = Field(description="of the instance")


# The fields of the last base come first.
class LiveEvent(Event, EventPlace, needs=("id", "sequence", "type", "at")):
    """One fact, with its place among all. It is also the data of a server-sent event."""


class EventPage(ReplyModel):
    """One page of the log."""

    events: tuple[LiveEvent, ...]
    next_cursor: str | None = Field(description="of the next page, further back; null on the last")
    last_event_id: str = Field(description="from here a stream can be resumed")


# This type also reports an orphan that belongs to no instance, with other data.
ORPHAN_DETECTED = "instance.orphan_detected"
INSTANCE_EVENT_TYPES = (
    *("instance.created", "instance.waiting", "instance.granted", "instance.starting", "instance.running"),
    "instance.health_checking",
    *("instance.ready", "instance.failed", "instance.timeout", "instance.stopping", "instance.exited"),
    *("instance.deleted", "instance.reclaim_notice", "instance.reclaim_withdrawn"),
    *("instance.replacing", "instance.replaced"),
    *("instance.replacement_refused", "instance.replacement_gave_up"),
    *("instance.lease_ending", "instance.lease_ended", "instance.silence_ended"),
    *("instance.idle_warning", "instance.idle_ended"),
    *("instance.data_expiring", ORPHAN_DETECTED),
)
# About the account, and told to endpoints alone.
COSTS_DRIFT, PRICE_CHANGED, LOW_BALANCE = "costs.drift", "costs.price_changed", "account.low_balance"
BUDGET_EVENT_TYPES = ("budget.warning", "budget.exhausted", "budget.reset")
MONEY_EVENT_TYPES = (COSTS_DRIFT, PRICE_CHANGED, LOW_BALANCE, *BUDGET_EVENT_TYPES)
TEST = "webhook.test"
EventType = Annotated[str, one_of(*INSTANCE_EVENT_TYPES, *MONEY_EVENT_TYPES, TEST)]
DeliveryState = Annotated[str, one_of("pending", "delivered", "dead")]
# `webhook` is for programs and is signed, the others are for people.
EndpointKind = Annotated[str, one_of("webhook", "slack", "discord", "ntfy", "email")]


class WebhookEndpoint(ReplyModel, needs=("id",)):
    """A receiver that hears of everything, or of some types."""

    id: str
    url: str = Field(
        description="without the values of its query; where the address is itself a secret, its host alone"
    )
    kind: EndpointKind = Field(default="webhook", description="how events are written for it")
    label: str | None
    events: tuple[EventType, ...] | None = Field(description="null: all")
    enabled: bool
    disabled_at: Moment | None
    disabled_reason: str | None
    secret_generation: int
    secret_known: bool = Field(description="whether this server can sign with its secret")
    rotated_at: Moment | None
    previous_secret_signs_until: Moment | None
    created_at: Moment


class WebhookEndpointWithSecret(WebhookEndpoint):
    """An endpoint with a new secret."""

    secret: str | None = Field(
        repr=False,
        description="for the receiver, only in this reply; null in a repeated reply, or if nothing is signed",
    )


class WebhookEndpoints(ReplyModel):
    """All endpoints, oldest first."""

    endpoints: tuple[WebhookEndpoint, ...]
    total: int


class WebhookEndpointRemoved(ReplyModel):
    """An endpoint that is no more."""

    id: str
    removed: bool


class DeliverySummary(ReplyModel, needs=("id", "type", "state")):
    """One event on its way to one receiver."""

    id: str = Field(description="the `webhook-id` of the request")
    type: EventType
    instance_id: str | None = Field(description="null where it concerns the account as a whole")
    endpoint_id: str | None = Field(description="null: the URL that the instance brought along")
    sequence: int
    url: str = Field(description="without the values of its query")
    state: DeliveryState = Field(description="dead: given up, sent again only by hand")
    tries: int
    replays: int = Field(description="how often somebody asked for it again")
    last_status: int | None = Field(description="what the receiver answered")
    last_error: str | None
    created_at: Moment
    last_tried_at: Moment | None
    next_try_at: Moment | None
    delivered_at: Moment | None


class DeliveryTry(ReplyModel):
    """One try to deliver."""

    at: Moment
    status: int | None = Field(description="what the receiver answered")
    outcome: str = Field(description="`ok`, or the kind of failure")
    duration_ms: Number


class Delivery(DeliverySummary):
    """One event on its way to one receiver, with its latest tries and what it says."""

    log: tuple[DeliveryTry, ...]
    payload: Mapping[str, Any] = Field(
        repr=False, description="the body, without the values of queries of URLs"
    )


class DeliveryPage(ReplyModel):
    """One page of deliveries, newest first."""

    deliveries: tuple[DeliverySummary, ...]
    total: int = Field(description="on all pages")
    next_cursor: str | None = Field(description="of the next page; null on the last")


class ReplayedDeliveries(ReplyModel):
    """How many deliveries are sent again."""

    count: int


class KeyWebhookSecret(ReplyModel, needs=("key_id", "signed_with")):
    """What signs the webhooks to the URLs that the instances of a key bring along."""

    key_id: str
    signed_with: Annotated[str, one_of("key", "common", "nothing")] = Field(
        description="the key's own, or WEBHOOK_SECRET"
    )
    secret: str | None = Field(
        repr=False, description="the key's own; null for others than its holder, and where it has none"
    )
    rotated_at: Moment | None
    previous_secret_signs_until: Moment | None = Field(
        description="until then what has signed before signs too"
    )


class WebhookTest(ReplyModel, needs=("id", "accepted")):
    """How a test went."""

    id: str
    url: str = Field(description="without the values of its query")
    accepted: bool
    status: int | None = Field(description="what the receiver answered")
    outcome: str = Field(description="`ok`, or the kind of failure")
    error: str | None
    duration_ms: Number


class InstanceEventData(InstanceRecord):
    """The instance as it was when the event happened."""

    orphan: LeftOutIfNone[OrphanNotice] = Field(default=None, description="of `instance.orphan_detected`")
    sequence: int = Field(description="drop what has a lower one than what you have seen of this instance")


class AccountEventData(ReplyModel):
    """A machine that no instance has."""

    instance_id: None
    reason: str
    cloud_instance_id: str
    verdict: Verdict
    hourly_price: Usd | None
    product_name: str | None
    region: str | None
    sequence: int = Field(description="counts the events of the account")


class DriftEventData(DriftNotice):
    """A day of which the meter and the provider's bill say different things."""

    reason: str
    sequence: int = Field(description="counts the events of the account")


class PriceEventData(PriceNotice):
    """A machine that is billed at another price than the one it was rented at."""

    reason: str
    sequence: int = Field(description="counts the events of the account")


class BalanceEventData(BalanceNotice):
    """What is left does not last much longer."""

    reason: str
    sequence: int = Field(description="counts the events of the account")


class BudgetEventData(BudgetNotice):
    """How far a budget is used up."""

    reason: str
    sequence: int = Field(description="counts the events of the account")


class TestEventData(ReplyModel):
    """Nothing happened."""

    endpoint_id: str | None
    message: str


class InstanceEventBody(ReplyModel):
    """The body of a webhook about an instance."""

    type: Annotated[str, one_of(*INSTANCE_EVENT_TYPES)]
    timestamp: Moment = Field(description="when it happened")
    data: InstanceEventData


class AccountEventBody(ReplyModel):
    """The body of a webhook about the account as a whole."""

    type: Annotated[str, one_of(ORPHAN_DETECTED)]
    timestamp: Moment = Field(description="when it happened")
    data: AccountEventData


class DriftEventBody(ReplyModel):
    """The body of a webhook about a day that was compared with the bill."""

    type: Annotated[str, one_of(COSTS_DRIFT)]
    timestamp: Moment = Field(description="when it happened")
    data: DriftEventData


class PriceEventBody(ReplyModel):
    """The body of a webhook about a price."""

    type: Annotated[str, one_of(PRICE_CHANGED)]
    timestamp: Moment = Field(description="when it happened")
    data: PriceEventData


class BalanceEventBody(ReplyModel):
    """The body of a webhook about the balance."""

    type: Annotated[str, one_of(LOW_BALANCE)]
    timestamp: Moment = Field(description="when it happened")
    data: BalanceEventData


class BudgetEventBody(ReplyModel):
    """The body of a webhook about a budget."""

    type: Annotated[str, one_of(*BUDGET_EVENT_TYPES)]
    timestamp: Moment = Field(description="when it happened")
    data: BudgetEventData


class TestEventBody(ReplyModel):
    """The body of a test."""

    type: Annotated[str, one_of(TEST)]
    timestamp: Moment
    data: TestEventData


# Bodies

_TYPES = sorted((*INSTANCE_EVENT_TYPES, *MONEY_EVENT_TYPES))
_EVENTS = f"must be a list of some of these types: {', '.join(_TYPES)}"


def _known_types(value: list[str]) -> list[str]:
    if not set(value) <= set(_TYPES):
        raise ValueError(_EVENTS)
    return sorted(set(value))


def _usable_target(value: str, info: ValidationInfo) -> str:
    # Without a kind the body is refused in any case, and no rule can judge the address.
    return checked_target(info.data["kind"], value, info) if "kind" in info.data else value


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
    """An endpoint to create.

    Without `events` a webhook receives all events, and the other kinds those that people read.
    """

    # Before the address, which is judged by it.
    kind: Annotated[
        Literal["webhook", "slack", "discord", "ntfy", "email"],
        Code("INVALID_KIND"),
        Words("must be one of webhook, slack, discord, ntfy, email"),
    ] = "webhook"
    # For Slack, Discord and ntfy the address that they give you; for mail `mailto:` and an address.
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
        GivenMoment,
        Code("INVALID_SINCE"),
        Words("must be a time in ISO 8601, like 2026-01-31T12:00:00Z"),
    ]
    state: Annotated[
        Literal["failed", "dead"],
        Code("INVALID_STATE"),
        Words("must be failed or dead"),
    ] = "failed"
    endpoint_id: EndpointId | None = None


class WebhookTestBody(WebhooksBody):
    """Where to send a test: to a URL, or to an endpoint with its own secret."""

    endpoint_id: EndpointId | None = None
    url: Annotated[WebhookUrl | None, AfterValidator(_one_target)] = Field(None, validate_default=True)
