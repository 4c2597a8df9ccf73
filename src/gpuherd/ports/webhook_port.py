"""What the use cases need of webhooks: who wants them, how one is sent, and what became of each."""

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
    """The webhooks of an event and the jobs that send them, to be written in one transaction with it."""

    deliveries: tuple[Delivery, ...] = ()
    jobs: tuple[NewJob, ...] = ()


class WakesNext(Enum):
    """When the next delivery goes at once."""

    NEVER = "never"
    # If it waits only for its order.
    IF_DUE = "if due"
    # Whatever its schedule says.
    ALWAYS = "always"


@dataclass(frozen=True)
class DeliveryUpdate:
    """What becomes true with a try of a webhook, in one transaction or not at all."""

    delivery: Delivery
    # The job that has reached its end with it; failed, if there is an error to say why.
    finished_job: str | None = None
    error: str | None = None
    # Jobs to wake, or to take where there is none with that key.
    wakes: tuple[NewJob, ...] = ()
    # When to wake the earliest pending delivery behind it, of the same instance to the same receiver.
    wakes_next: WakesNext = WakesNext.NEVER


class Outbox(Protocol):
    """Webhooks that are on their way.

    A receiver is an endpoint, or the URL that the instance brought along.
    """

    async def get(self, delivery_id: str) -> Delivery:
        """Return one delivery; `NotFound` if there is none."""
        ...

    async def queued(self, delivery_id: str) -> QueuedDelivery:
        """Return one delivery and what stands before it, as of one moment; `NotFound` if there is none."""
        ...

    async def waiting_with(self, delivery: Delivery, limit: int) -> Sequence[Delivery]:
        """Return other deliveries to the same receiver, of any instance, that wait for another try.

        Oldest first.
        """
        ...

    async def save(self, delivery: Delivery) -> None:
        """Write down how a delivery stands; its bytes never change."""
        ...

    async def record_try(self, update: DeliveryUpdate) -> Delivery | None:
        """Write down how a try went and what follows from it.

        Return the next delivery if it should go at once and has no job that could be woken.
        """
        ...


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

    `category` is ok, redirect, gone, throttled, http_4xx, http_5xx, or a `FailureCategory`. Of a mail
    also smtp_4xx, smtp_5xx, rejected (this message, for good), unknown (the answer was lost, so it may have
    been taken) and not_configured. `status` is the code that was answered, HTTP's or SMTP's.
    """

    accepted: bool
    status: int | None
    category: str
    detail: str
    retry_after_s: float | None
    elapsed_s: float


@dataclass(frozen=True)
class WebhookTestResult:
    """How a test went. What the receiver wrote is not in it."""

    event_id: str
    url: str
    result: DeliveryResult


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


class Notifier(Protocol):
    """Writes one event for people, in the way that the kind of the endpoint asks for."""

    @property
    def sends_mail(self) -> bool:
        """Whether there is a mail server to hand mail in at."""
        ...

    async def notify(
        self, endpoint: WebhookEndpoint, event_id: str, body: bytes, now: datetime
    ) -> DeliveryResult:
        """Try once to say what this event says; whatever the receiver or the network does is a result.

        The same event says the same at every try. `event_id` lets a reader recognise a repeat, where there is
        a place for it.
        """
        ...
