"""What the use cases need of webhooks: their receivers, how one is sent, and the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Protocol

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.job import NewJob
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_delivery import Delivery, QueuedDelivery
from gpuherd.domain.webhooks.webhook_endpoint import WebhookEndpoint


@dataclass(frozen=True)
class OutboxEntries:
    """The webhooks of an event and the jobs that send them. They are written in the event's transaction."""

    deliveries: tuple[Delivery, ...] = ()
    jobs: tuple[NewJob, ...] = ()


class WakesNext(Enum):
    """When the next delivery is sent at once."""

    NEVER = "never"
    # If it waits only for its turn.
    IF_DUE = "if due"
    # Even if its schedule says later.
    ALWAYS = "always"


@dataclass(frozen=True)
class DeliveryUpdate:
    """The result of one webhook try, written in one transaction or not at all."""

    delivery: Delivery
    # The job that ends with it; it has failed if there is an error.
    finished_job: str | None = None
    error: str | None = None
    # Jobs to wake, or to take if there is none with that key.
    wakes: tuple[NewJob, ...] = ()
    # When to wake the next pending delivery of the same instance to the same receiver.
    wakes_next: WakesNext = WakesNext.NEVER


class Outbox(Protocol):
    """Webhooks that are not delivered yet.

    A receiver is an endpoint, or the URL that an instance named.
    """

    async def get(self, delivery_id: str) -> Delivery:
        """Return one delivery; `NotFound` if there is none."""
        ...

    async def queued(self, delivery_id: str) -> QueuedDelivery:
        """Return one delivery and the deliveries before it, at one moment; `NotFound` if there is none."""
        ...

    async def waiting_with(self, delivery: Delivery, limit: int) -> Sequence[Delivery]:
        """Return other deliveries to the same receiver, of any instance, that wait for another try.

        Oldest first.
        """
        ...

    async def save(self, delivery: Delivery) -> None:
        """Store the state of a delivery. Its bytes never change."""
        ...

    async def record_try(self, update: DeliveryUpdate) -> Delivery | None:
        """Store the result of a try and its consequences.

        Return the next delivery if it must be sent at once and has no job to wake.
        """
        ...


class DeliveryFilter(StrEnum):
    """Which deliveries to list: one state, or all that failed and have not arrived yet."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    DEAD = "dead"


@dataclass(frozen=True)
class DeliveryQuery:
    """Which deliveries to list, newest first by default."""

    state: DeliveryFilter | None = None
    instance_id: str | None = None
    endpoint_id: str | None = None
    type: str | None = None
    # Only deliveries to URLs that this owner's instances named.
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
    """Every webhook of the last days, for people."""

    async def page(self, query: DeliveryQuery) -> DeliveryPage:
        """Return one page of a list."""
        ...

    async def reopen(self, again: Sequence[tuple[Delivery, NewJob]]) -> None:
        """Store the new state of these deliveries with their sending jobs; never the bytes.

        A delivery that still has a job is only made due at once.
        """
        ...

    async def prune(self, delivered_before: datetime, dead_before: datetime) -> int:
        """Delete what was delivered or given up before then; return how many."""
        ...


class WebhookEndpoints(Protocol):
    """The stored endpoints."""

    async def add(self, endpoint: WebhookEndpoint, audit_record: AuditRecord | None = None) -> None:
        """Store a new endpoint."""
        ...

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        """Return one endpoint; `NotFound` (WEBHOOK_ENDPOINT_NOT_FOUND) if there is none."""
        ...

    async def list_all(self) -> tuple[WebhookEndpoint, ...]:
        """Return all endpoints, oldest first."""
        ...

    async def change(
        self, before: WebhookEndpoint, after: WebhookEndpoint, audit_record: AuditRecord | None = None
    ) -> None:
        """Write a change; `StaleWrite` if the endpoint changed since, `NotFound` if it is gone."""
        ...

    async def remove(self, endpoint_id: str, audit_record: AuditRecord | None = None) -> None:
        """Delete one endpoint; `NotFound` if there is none."""
        ...


@dataclass(frozen=True)
class DeliveryResult:
    """The result of one try. `detail` is our own sentence and never quotes the receiver.

    `category` is ok, redirect, gone, throttled, http_4xx, http_5xx, or a `FailureCategory`. For mail also
    smtp_4xx, smtp_5xx, rejected (this message, permanently), unknown (the answer was lost, so the mail may
    have been accepted) and not_configured. `status` is the receiver's HTTP or SMTP code.
    """

    accepted: bool
    status: int | None
    category: str
    detail: str
    retry_after_s: float | None
    elapsed_s: float


@dataclass(frozen=True)
class WebhookTestResult:
    """The result of a test. It quotes nothing of the receiver."""

    event_id: str
    url: str
    result: DeliveryResult


class WebhookSender(Protocol):
    """Sends one event to one receiver."""

    async def send(
        self,
        url: str,
        event_id: str,
        body: bytes,
        now: datetime,
        secrets: Sequence[Secret] | None = None,
    ) -> DeliveryResult:
        """Try once to deliver exactly these bytes. Every failure of the receiver or the network is a result.

        Each of `secrets` signs; without any, those of the installation.
        """
        ...


class Notifier(Protocol):
    """Sends one event as a message for people, in the format of the endpoint's kind."""

    @property
    def sends_mail(self) -> bool:
        """True if a mail server is configured."""
        ...

    async def notify(
        self, endpoint: WebhookEndpoint, event_id: str, body: bytes, now: datetime
    ) -> DeliveryResult:
        """Try once to send this event. Every failure of the receiver or the network is a result.

        The same event gives the same message at every try. `event_id` lets a reader recognize a repeat, if
        the format has a place for it.
        """
        ...
