"""Webhooks: who gets them, what became of each, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from gpuherd.contract.budget import BudgetNotice
from gpuherd.contract.codec.model import Model, hidden
from gpuherd.contract.codec.values import LeftOutIfNone, OneOf
from gpuherd.contract.costs import BalanceNotice, DriftNotice, PriceNotice
from gpuherd.contract.instance import InstanceRecord
from gpuherd.contract.orphan import OrphanNotice, Verdict

# An orphan that no instance has is told in this one too, with other data.
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
EventType = Annotated[str, OneOf((*INSTANCE_EVENT_TYPES, *MONEY_EVENT_TYPES, TEST))]
DeliveryState = Annotated[str, OneOf(("pending", "delivered", "dead"))]
# `webhook` is for programs and is signed, the others are for people.
EndpointKind = Annotated[str, OneOf(("webhook", "slack", "discord", "ntfy", "email"))]


class WebhookEndpoint(Model, needs=("id",)):
    """A receiver that hears of everything, or of some types."""

    id: str
    url: str  # without the values of its query; where the address is itself a secret, its host alone
    kind: EndpointKind = "webhook"  # how events are written for it
    label: str | None
    events: tuple[EventType, ...] | None  # None: all
    enabled: bool
    disabled_at: datetime | None
    disabled_reason: str | None
    secret_generation: int
    secret_known: bool  # whether this server can sign with its secret
    rotated_at: datetime | None
    previous_secret_signs_until: datetime | None
    created_at: datetime


class WebhookEndpointWithSecret(WebhookEndpoint):
    """An endpoint with a new secret."""

    secret: str | None = (
        hidden()
    )  # for the receiver, in this reply only; None where a request is repeated, or nothing is signed


class WebhookEndpoints(Model):
    """All endpoints, oldest first."""

    endpoints: tuple[WebhookEndpoint, ...]
    total: int


class WebhookEndpointRemoved(Model):
    """An endpoint that is no more."""

    id: str
    removed: bool


class DeliverySummary(Model, needs=("id", "type", "state")):
    """One event on its way to one receiver."""

    id: str  # the `webhook-id` of the request
    type: EventType
    instance_id: str | None  # None where it concerns the account as a whole
    endpoint_id: str | None  # None: the URL that the instance brought along
    sequence: int
    url: str  # without the values of its query
    state: DeliveryState  # dead: given up, sent again only by hand
    tries: int
    replays: int  # how often somebody asked for it again
    last_status: int | None  # what the receiver answered
    last_error: str | None
    created_at: datetime
    last_tried_at: datetime | None
    next_try_at: datetime | None
    delivered_at: datetime | None


class DeliveryTry(Model):
    """One try to deliver."""

    at: datetime
    status: int | None  # what the receiver answered
    outcome: str  # `ok`, or the kind of failure
    duration_ms: float


class Delivery(DeliverySummary):
    """One event on its way to one receiver, with its latest tries and what it says."""

    log: tuple[DeliveryTry, ...]
    payload: Mapping[str, Any] = hidden()  # the body, without the values of queries of URLs


class DeliveryPage(Model):
    """One page of deliveries, newest first."""

    deliveries: tuple[DeliverySummary, ...]
    total: int  # on all pages
    next_cursor: str | None  # of the next page; None on the last


class ReplayedDeliveries(Model):
    """How many deliveries are sent again."""

    count: int


class KeyWebhookSecret(Model, needs=("key_id", "signed_with")):
    """What signs the webhooks to the URLs that the instances of a key bring along."""

    key_id: str
    signed_with: Annotated[str, OneOf(("key", "common", "nothing"))]  # the key's own, or WEBHOOK_SECRET
    secret: str | None = hidden()  # the key's own; None for others than its holder, and where it has none
    rotated_at: datetime | None
    previous_secret_signs_until: datetime | None  # until then what has signed before signs too


class WebhookTest(Model, needs=("id", "accepted")):
    """How a test went."""

    id: str
    url: str  # without the values of its query
    accepted: bool
    status: int | None  # what the receiver answered
    outcome: str  # `ok`, or the kind of failure
    error: str | None
    duration_ms: float


class InstanceEventData(InstanceRecord):
    """The instance as it was when the event happened."""

    orphan: LeftOutIfNone[OrphanNotice] = None  # of `instance.orphan_detected`
    sequence: int  # drop what has a lower one than what you have seen of this instance


class AccountEventData(Model):
    """A machine that no instance has."""

    instance_id: None
    reason: str
    cloud_instance_id: str
    verdict: Verdict
    hourly_price: Decimal | None
    product_name: str | None
    region: str | None
    sequence: int  # counts the events of the account


class DriftEventData(DriftNotice):
    """A day of which the meter and the provider's bill say different things."""

    reason: str
    sequence: int  # counts the events of the account


class PriceEventData(PriceNotice):
    """A machine that is billed at another price than the one it was rented at."""

    reason: str
    sequence: int  # counts the events of the account


class BalanceEventData(BalanceNotice):
    """What is left does not last much longer."""

    reason: str
    sequence: int  # counts the events of the account


class BudgetEventData(BudgetNotice):
    """How far a budget is used up."""

    reason: str
    sequence: int  # counts the events of the account


class TestEventData(Model):
    """Nothing happened."""

    endpoint_id: str | None
    message: str


class InstanceEventBody(Model):
    """The body of a webhook about an instance."""

    type: Annotated[str, OneOf(INSTANCE_EVENT_TYPES)]
    timestamp: datetime  # when it happened
    data: InstanceEventData


class AccountEventBody(Model):
    """The body of a webhook about the account as a whole."""

    type: Annotated[str, OneOf((ORPHAN_DETECTED,))]
    timestamp: datetime  # when it happened
    data: AccountEventData


class DriftEventBody(Model):
    """The body of a webhook about a day that was compared with the bill."""

    type: Annotated[str, OneOf((COSTS_DRIFT,))]
    timestamp: datetime  # when it happened
    data: DriftEventData


class PriceEventBody(Model):
    """The body of a webhook about a price."""

    type: Annotated[str, OneOf((PRICE_CHANGED,))]
    timestamp: datetime  # when it happened
    data: PriceEventData


class BalanceEventBody(Model):
    """The body of a webhook about the balance."""

    type: Annotated[str, OneOf((LOW_BALANCE,))]
    timestamp: datetime  # when it happened
    data: BalanceEventData


class BudgetEventBody(Model):
    """The body of a webhook about a budget."""

    type: Annotated[str, OneOf(BUDGET_EVENT_TYPES)]
    timestamp: datetime  # when it happened
    data: BudgetEventData


class TestEventBody(Model):
    """The body of a test."""

    type: Annotated[str, OneOf((TEST,))]
    timestamp: datetime
    data: TestEventData
