"""A webhook delivery and what to do with it now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.api_key import ADMIN_ID
from gpuherd.domain.webhooks.webhook_endpoint import WebhookEndpoint

DELIVERY_ID_PREFIX = "msg_"


# Older tries are forgotten; their number is not.
TRIES_KEPT = 20


# Longer than the schedule. Only waiting for a host that is ejected repeatedly takes this long.
DELIVERY_LIFETIME = timedelta(hours=96)


class DeliveryState(StrEnum):
    """The state of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    # Given up. It is shown to people and sent again only by hand.
    DEAD = "dead"


@dataclass(frozen=True)
class DeliveryTry:
    """The result of one try: `outcome` is ok or the class of the failure, `status` the answer."""

    at: datetime
    outcome: str
    status: int | None
    duration_ms: int


@dataclass(frozen=True)
class Delivery:
    """One event for one receiver."""

    id: str
    # "account" for an event without an instance.
    instance_id: str
    sequence: int
    type: str
    url: str
    body: bytes
    created_at: datetime
    state: DeliveryState = DeliveryState.PENDING
    # Tries that count against the schedule; a replay restarts at 0.
    tries: int = 0
    next_at: datetime | None = None
    delivered_at: datetime | None = None
    last_status: int | None = None
    last_error: str = ""
    # The endpoint; None for the URL that an instance named.
    endpoint_id: str | None = None
    tried_at: datetime | None = None
    # How many replays were requested.
    replays: int = 0
    # When to give up in any case; None: one lifetime after it was made.
    expires_at: datetime | None = None
    # The latest tries, oldest first.
    log: tuple[DeliveryTry, ...] = ()
    # The API key of the instance that named the URL. Its secret signs, also after the instance is forgotten.
    # None for endpoints, and in records of older versions.
    owner: str | None = None

    @property
    def deadline(self) -> datetime:
        return self.expires_at or self.created_at + DELIVERY_LIFETIME

    @property
    def first_due_at(self) -> datetime:
        """When its first try was due: when it was made or replayed."""
        return self.deadline - DELIVERY_LIFETIME

    def is_early(self, now: datetime) -> bool:
        """Return True if its next scheduled try is in the future."""
        return self.next_at is not None and now < self.next_at

    def with_try(self, one: DeliveryTry, error: str) -> Delivery:
        """Return the delivery with one more try in its log. The caller decides whether the try counts."""
        return replace(
            self,
            tried_at=one.at,
            last_status=one.status,
            last_error=error,
            log=(*self.log, one)[-TRIES_KEPT:],
        )

    def accepted(self, now: datetime) -> Delivery:
        """Return the delivery as accepted."""
        return replace(
            self, state=DeliveryState.DELIVERED, tries=self.tries + 1, delivered_at=now, next_at=None
        )

    def dead_lettered(self) -> Delivery:
        """Return the delivery as a dead letter."""
        return replace(self, state=DeliveryState.DEAD, next_at=None)

    def reset_for_replay(self, now: datetime) -> Delivery:
        """Return the delivery reopened for a replay, with its earlier tries."""
        return replace(
            self,
            state=DeliveryState.PENDING,
            tries=0,
            next_at=None,
            delivered_at=None,
            replays=self.replays + 1,
            expires_at=now + DELIVERY_LIFETIME,
        )


# A delivery that waits for an earlier one is woken after that one's try. This covers lost wakeups.
OUT_OF_ORDER_RETRY = timedelta(seconds=15)


# If an earlier event failed this recently, it would fail again.
RECENT_FAILURE_WINDOW = timedelta(seconds=60)


# Another replica may have the key, or a user may rotate the secret.
MISSING_KEY_RETRY_S = 60.0


@dataclass(frozen=True)
class QueuedDelivery:
    """A delivery and the deliveries before it, at one moment."""

    delivery: Delivery
    # The instance's URL answered 410 to the latest settled event of this instance. Never set for an endpoint:
    # that is disabled instead.
    is_gone: bool = False
    # Of the earlier deliveries of the same instance to the same receiver: the first that was never tried,
    # otherwise the first that waits for another try.
    earlier: Delivery | None = None
    # The API key of the instance; the admin's if there is none.
    owner: str = ADMIN_ID


@dataclass(frozen=True)
class Receiver:
    """What is known of the receiver."""

    # None also if the endpoint was removed.
    endpoint: WebhookEndpoint | None = None
    # True if the signing key is available.
    has_key: bool = True
    # For how long its host is still ejected.
    ejected_s: float = 0.0


@dataclass(frozen=True)
class AlreadySettled:
    """Nothing is left to do."""


@dataclass(frozen=True)
class DeadLetter:
    """Nothing can be sent to this receiver any more."""

    error: str


@dataclass(frozen=True)
class Postpone:
    """Sending is not possible now. The wait uses up no try."""

    seconds: float
    reason: str


@dataclass(frozen=True)
class WaitForEarlier:
    """An earlier event of the instance goes first."""

    # The delivery to wake; on its own it would wait for its schedule.
    wakes: Delivery | None = None


@dataclass(frozen=True)
class SendNow:
    """The delivery can be sent."""


Dispatch = AlreadySettled | DeadLetter | Postpone | WaitForEarlier | SendNow


def dispatch(queued: QueuedDelivery, receiver: Receiver, now: datetime) -> Dispatch:
    """Return what to do with a due delivery."""
    it = queued.delivery
    if it.state is not DeliveryState.PENDING:
        return AlreadySettled()
    if closed := _closed(queued, receiver.endpoint):
        return DeadLetter(closed)
    if not receiver.has_key:
        return _wait(it, MISSING_KEY_RETRY_S, "the root key of the receiver's secret is not here", now)
    if receiver.ejected_s:
        return _wait(it, receiver.ejected_s, "the receiver's host has failed too often lately", now)
    return _in_order(it, queued.earlier, now)


def _closed(queued: QueuedDelivery, endpoint: WebhookEndpoint | None) -> str:
    """Return why nothing can be sent to the receiver any more; empty if it can."""
    if queued.delivery.endpoint_id is None:
        # A replay is requested to learn the present state.
        gone = queued.is_gone and not queued.delivery.replays
        return "gone: the receiver answered 410 to an earlier event" if gone else ""
    if endpoint is None:
        return "removed: the endpoint is no longer there"
    return "" if endpoint.is_enabled else f"disabled: {endpoint.disabled_reason}"


def _wait(delivery: Delivery, seconds: float, why: str, now: datetime) -> Postpone | DeadLetter:
    """Wait, or give up when the delivery has expired."""
    return Postpone(seconds, why) if now < delivery.deadline else DeadLetter(f"expired: {why}")


def _in_order(delivery: Delivery, earlier: Delivery | None, now: datetime) -> WaitForEarlier | SendNow:
    """Keep the order of first tries, and of repeats after an outage.

    A delivery that always fails delays later ones no longer than one try takes.
    """
    if earlier is None:
        return SendNow()
    # guard: an event never overtakes an earlier one that was not tried
    if not earlier.tries:
        return WaitForEarlier()
    # A failed delivery waits for minutes or hours. Newer ones do not wait for it.
    failed_just_now = earlier.tried_at and now - earlier.tried_at < RECENT_FAILURE_WINDOW
    return SendNow() if not delivery.tries or failed_just_now else WaitForEarlier(earlier)
