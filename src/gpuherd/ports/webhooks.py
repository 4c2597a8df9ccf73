"""What the use cases need of webhooks: who wants them, how one is sent, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.delivery import Delivery
from gpuherd.domain.webhooks.endpoint import WebhookEndpoint
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

    async def add(self, endpoint: WebhookEndpoint, audit_record: AuditRecord | None = None) -> None:
        """Remember a new one."""
        ...

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        """Return one; `NotFound` (WEBHOOK_ENDPOINT_NOT_FOUND) if there is none."""
        ...

    async def list_all(self) -> tuple[WebhookEndpoint, ...]:
        """Return all, oldest first."""
        ...

    async def change(
        self, before: WebhookEndpoint, after: WebhookEndpoint, audit_record: AuditRecord | None = None
    ) -> None:
        """Write a change; `StaleWrite` if somebody else changed it since, `NotFound` if it is gone."""
        ...

    async def remove(self, endpoint_id: str, audit_record: AuditRecord | None = None) -> None:
        """Forget one; `NotFound` if there is none."""
        ...


@dataclass(frozen=True)
class DeliveryResult:
    """How one try ended. `detail` is our own sentence and never repeats what the receiver wrote.

    `category` is ok, redirect, gone, throttled, http_4xx, http_5xx, or a `FailureCategory`.
    """

    accepted: bool
    status: int | None
    category: str
    detail: str
    retry_after_s: float | None
    elapsed_s: float


class WebhookSender(Protocol):
    """Carries one event to one receiver."""

    async def send(
        self,
        url: str,
        event_id: str,
        body: bytes,
        now: datetime,
        secrets: Sequence[Secret] | None = None,
    ) -> DeliveryResult:
        """Try once to deliver exactly these bytes; whatever the receiver or the network does is a result.

        Signed with each of `secrets`; without any given, with those of the installation.
        """
        ...
