"""A webhook on its way, and what to do with it now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.api_key import ADMIN_ID
from gpuherd.domain.webhooks.webhook_endpoint import WebhookEndpoint

DELIVERY_ID_PREFIX = "msg_"


# What is older than so many tries is forgotten; the number of tries is not.
TRIES_KEPT = 20


# Longer than the schedule takes: only waiting for a host that was ejected again and again comes so far.
DELIVERY_LIFETIME = timedelta(hours=96)


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    # Given up: shown to people, sent again only by hand.
    DEAD = "dead"


@dataclass(frozen=True)
class DeliveryTry:
    """How one try went: `outcome` is ok or the class of the failure, `status` what the receiver answered."""

    at: datetime
    outcome: str
    status: int | None
    duration_ms: int


@dataclass(frozen=True)
class Delivery:
    """One event for one receiver."""

    id: str
    # "account" for an event that belongs to no instance.
    instance_id: str
    sequence: int
    type: str
    url: str
    body: bytes
    created_at: datetime
    state: DeliveryState = DeliveryState.PENDING
    # Those that count against the schedule; a replay begins again at 0.
    tries: int = 0
    next_at: datetime | None = None
    delivered_at: datetime | None = None
    last_status: int | None = None
    last_error: str = ""
    # The endpoint it is for; None for the URL that an instance brought along.
    endpoint_id: str | None = None
    tried_at: datetime | None = None
    # How often a replay was asked for.
    replays: int = 0
    # When to give up in any case; None: so long after it was made.
    expires_at: datetime | None = None
    # The latest tries, oldest first.
    log: tuple[DeliveryTry, ...] = ()
    # The API key whose instance brought the URL along: its secret signs, also when the instance is forgotten.
    # None of an endpoint's, and of those of an older version.
    owner: str | None = None

    @property
    def deadline(self) -> datetime:
        return self.expires_at or self.created_at + DELIVERY_LIFETIME

    @property
    def first_due_at(self) -> datetime:
        """When its first try was due: when it was made, or replayed."""
        return self.deadline - DELIVERY_LIFETIME

    def is_early(self, now: datetime) -> bool:
        """Return True if the next try by the schedule is still to come."""
        return self.next_at is not None and now < self.next_at

    def with_try(self, one: DeliveryTry, error: str) -> Delivery:
        """Return it with one more try in its log; whether that one counts is the caller's to say."""
        return replace(
            self,
            tried_at=one.at,
            last_status=one.status,
            last_error=error,
            log=(*self.log, one)[-TRIES_KEPT:],
        )

    def accepted(self, now: datetime) -> Delivery:
        """Return it as done."""
        return replace(
            self, state=DeliveryState.DELIVERED, tries=self.tries + 1, delivered_at=now, next_at=None
        )

    def dead_lettered(self) -> Delivery:
        """Return it as a dead letter."""
        return replace(self, state=DeliveryState.DEAD, next_at=None)

    def reset_for_replay(self, now: datetime) -> Delivery:
        """Return it reopened for a replay, with all its tries before it."""
        return replace(
            self,
            state=DeliveryState.PENDING,
            tries=0,
            next_at=None,
            delivered_at=None,
            replays=self.replays + 1,
            expires_at=now + DELIVERY_LIFETIME,
        )


# A delivery that waits for an earlier one is woken when that one has been tried; this is for lost wakeups.
OUT_OF_ORDER_RETRY = timedelta(seconds=15)


# An earlier event that failed so short a time ago would fail again.
RECENT_FAILURE_WINDOW = timedelta(seconds=60)


# Another replica may have it, or somebody rotates the secret.
MISSING_KEY_RETRY_S = 60.0


@dataclass(frozen=True)
class QueuedDelivery:
    """A delivery and what stands before it, as of one moment."""

    delivery: Delivery
    # The URL that the instance brought along has answered 410 to the latest of this instance's events that
    # was settled. Never of an endpoint: that is disabled instead.
    is_gone: bool = False
    # Of those before it, of the same instance to the same receiver, the earliest that was never tried, or
    # if there is none, the earliest that waits for another try.
    earlier: Delivery | None = None
    # The API key to which the instance belongs; the admin's for what belongs to none.
    owner: str = ADMIN_ID


@dataclass(frozen=True)
class Receiver:
    """What is known of whom it is for."""

    # None also if the endpoint was removed.
    endpoint: WebhookEndpoint | None = None
    # Whether the key that signs for it is here.
    has_key: bool = True
    # For how long its host is still left alone.
    ejected_s: float = 0.0


@dataclass(frozen=True)
class AlreadySettled:
    """Nothing is left to do."""


@dataclass(frozen=True)
class DeadLetter:
    """Nothing can be sent there any more."""

    error: str


@dataclass(frozen=True)
class Postpone:
    """It cannot go now; waiting uses up no try."""

    seconds: float
    reason: str


@dataclass(frozen=True)
class WaitForEarlier:
    """An earlier event of the instance goes first."""

    # To be woken, because it would not go by itself before its schedule says so.
    wakes: Delivery | None = None


@dataclass(frozen=True)
class SendNow:
    """Nothing stands before it."""


Dispatch = AlreadySettled | DeadLetter | Postpone | WaitForEarlier | SendNow


def dispatch(queued: QueuedDelivery, receiver: Receiver, now: datetime) -> Dispatch:
    """Return what to do about a delivery that is due."""
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
    """Return why nothing can be sent there any more, or nothing if it can."""
    if queued.delivery.endpoint_id is None:
        # Who asks for a replay wants to know how it is now.
        gone = queued.is_gone and not queued.delivery.replays
        return "gone: the receiver answered 410 to an earlier event" if gone else ""
    if endpoint is None:
        return "removed: the endpoint is no longer there"
    return "" if endpoint.is_enabled else f"disabled: {endpoint.disabled_reason}"


def _wait(it: Delivery, seconds: float, why: str, now: datetime) -> Postpone | DeadLetter:
    """Wait for better times, but not for ever."""
    return Postpone(seconds, why) if now < it.deadline else DeadLetter(f"expired: {why}")


def _in_order(it: Delivery, earlier: Delivery | None, now: datetime) -> WaitForEarlier | SendNow:
    """Keep the order, of first tries and of repeats after an outage.

    One that always fails holds up those behind it for no longer than a try takes.
    """
    if earlier is None:
        return SendNow()
    # guard: an event never overtakes an earlier one that was not tried
    if not earlier.tries:
        return WaitForEarlier()
    # One that failed once waits for minutes or hours; newer ones need not wait with it.
    failed_just_now = earlier.tried_at and now - earlier.tried_at < RECENT_FAILURE_WINDOW
    return SendNow() if not it.tries or failed_just_now else WaitForEarlier(earlier)
