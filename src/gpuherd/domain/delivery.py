"""A delivery: one webhook on its way, the same bytes at every try."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    # Given up: shown to people, sent again only by hand.
    DEAD = "dead"


@dataclass(frozen=True)
class Delivery:
    """One event for one receiver."""

    id: str
    instance_id: str
    sequence: int
    type: str
    url: str
    body: bytes
    created_at: datetime
    state: DeliveryState = DeliveryState.PENDING
    tries: int = 0
    next_at: datetime | None = None
    delivered_at: datetime | None = None
    last_status: int | None = None
    last_error: str = ""
