"""What the use cases need to remember of webhooks: who wants them, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from gpuherd.domain.audit import Deed
from gpuherd.domain.delivery import Delivery
from gpuherd.domain.webhook_endpoint import WebhookEndpoint
from gpuherd.jobs.job import NewJob


class DeliveryFilter(StrEnum):
    """Which deliveries are meant: by state, or all that failed and did not arrive yet."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    DEAD = "dead"


@dataclass(frozen=True)
class DeliveryQuery:
    """Which deliveries to list, newest first unless told otherwise."""

    state: DeliveryFilter | None = None
    instance_id: str | None = None
    endpoint_id: str | None = None
    type: str | None = None
    # Only what went to the own addresses of this owner's instances.
    owner: str | None = None
    since: datetime | None = None
    limit: int = 50
    cursor: str | None = None
    oldest_first: bool = False


@dataclass(frozen=True)
class DeliveryPage:
    """One page of deliveries."""

    deliveries: tuple[Delivery, ...]
    total: int
    next_cursor: str | None


class DeliveryLog(Protocol):
    """Every webhook of the last days, as people look at it."""

    async def page(self, query: DeliveryQuery) -> DeliveryPage:
        """Return one page of a list."""
        ...

    async def reopen(self, again: Sequence[tuple[Delivery, NewJob]]) -> None:
        """Write these deliveries as they shall be, with the jobs that send them; never the bytes.

        One that has a job still is only made due at once: nothing of it is written.
        """
        ...

    async def prune(self, delivered_before: datetime, dead_before: datetime) -> int:
        """Forget what was delivered or given up before then; return how many that were."""
        ...


class WebhookEndpoints(Protocol):
    """The endpoints."""

    async def add(self, endpoint: WebhookEndpoint, deed: Deed | None = None) -> None:
        """Remember a new one."""
        ...

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        """Return one; `NotFound` (WEBHOOK_ENDPOINT_NOT_FOUND) if there is none."""
        ...

    async def everyone(self) -> tuple[WebhookEndpoint, ...]:
        """Return all, oldest first."""
        ...

    async def change(self, before: WebhookEndpoint, after: WebhookEndpoint, deed: Deed | None = None) -> None:
        """Write a change; `StaleWrite` if somebody else changed it since, `NotFound` if it is gone."""
        ...

    async def remove(self, endpoint_id: str, deed: Deed | None = None) -> None:
        """Forget one; `NotFound` if there is none."""
        ...
