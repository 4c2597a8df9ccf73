"""A delivery: one webhook on its way, the same bytes at every try."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

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
        """Tell whether the next try by the schedule is still to come."""
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
