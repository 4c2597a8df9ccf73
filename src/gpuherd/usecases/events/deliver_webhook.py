"""Try one webhook delivery, and decide when to try again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import structlog

from gpuherd.domain.backoff import next_delay_s
from gpuherd.domain.job import (
    Done,
    GiveUp,
    Job,
    NewJob,
    Outcome,
    Retry,
    Snooze,
)
from gpuherd.domain.secret import Secret
from gpuherd.domain.trace_spans import delivery_span, try_span
from gpuherd.domain.webhooks.webhook_delivery import (
    OUT_OF_ORDER_RETRY,
    AlreadySettled,
    DeadLetter,
    Delivery,
    DeliveryState,
    DeliveryTry,
    Postpone,
    QueuedDelivery,
    Receiver,
    SendNow,
    WaitForEarlier,
    dispatch,
)
from gpuherd.domain.webhooks.webhook_endpoint import WebhookEndpoint
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.webhook_port import (
    DeliveryResult,
    DeliveryUpdate,
    WakesNext,
)
from gpuherd.resilience.token_bucket import TokenBucket
from gpuherd.usecases.events.manage_webhooks import key_signing_secrets
from gpuherd.usecases.services import Services

log = structlog.get_logger()
Secrets = tuple[Secret, ...]


# When a receiver is back, so many waiting deliveries go at once; the others follow their schedule.
RECOVERY_WAKE_MAX = 200


GONE = "gone"
THROTTLED = "throttled"


# The receiver will never accept this message, but may accept others.
REJECTED = "rejected"


# True if the category proves that the host answers; None if the host was not asked.
_HOST_ANSWERS_BY_CATEGORY = {
    "ok": True,
    "redirect": True,
    GONE: True,
    "http_4xx": True,
    "smtp_4xx": True,
    "smtp_5xx": True,
    REJECTED: True,
    "blocked_target": None,
    "not_configured": None,
}


async def deliver_webhook(services: Services, job: Job) -> Outcome:
    """Handle a job `send_webhook`: try one delivery.

    The handler does not wait for an ejected host, and only a moment for a busy one. A wait would take the
    place of a worker from other receivers.
    """
    queued = await services.stores.outbox.queued(job.payload["deliveryId"])
    delivery = queued.delivery
    endpoint = await services.endpoint_cache.find(delivery.endpoint_id) if delivery.endpoint_id else None
    secrets = await _secrets(services, queued, endpoint)
    host = _host_of(delivery)
    receiver = Receiver(endpoint, secrets != (), services.host_gate.ejected_s(host))
    match dispatch(queued, receiver, services.clock.now()):
        case AlreadySettled():
            return Done()
        case DeadLetter(error):
            return await _give_up(services, job, replace(delivery, last_error=error))
        case Postpone(seconds, reason):
            return Snooze(_span(seconds), reason)
        case WaitForEarlier(earlier):
            if earlier is not None:
                await services.stores.jobs.wake_or_enqueue([services.job_factory.delivery_job(earlier)])
            return Snooze(OUT_OF_ORDER_RETRY, "an earlier event of this instance goes first")
        case SendNow():
            if wait_s := services.message_pace.take(endpoint):
                return Snooze(_span(wait_s), "the receiver takes so many messages a second")
            if wait_s := await services.host_gate.acquire(host):
                services.message_pace.give_back(endpoint)
                return Snooze(_span(wait_s), "the receiver's host is busy with others")
    begun = services.clock.now()
    result = await _send(services, delivery, endpoint, secrets, host)
    if services.tracer.is_on:
        services.tracer.record(
            try_span(delivery, result.category, result.status, begun, services.clock.now())
        )
    return await _record_result(services, job, delivery, endpoint, result, begun)


async def _secrets(
    services: Services, queued: QueuedDelivery, endpoint: WebhookEndpoint | None
) -> Secrets | None:
    if endpoint is not None:
        return services.endpoint_cache.secrets(endpoint) if endpoint.kind.is_signed else None
    return None if queued.delivery.endpoint_id else await key_signing_secrets(services, queued.owner)


async def _send(
    services: Services,
    delivery: Delivery,
    endpoint: WebhookEndpoint | None,
    secrets: Secrets | None,
    host: str,
) -> DeliveryResult:
    succeeded, seconds = None, 0.0
    try:
        result = await _try(services, delivery, endpoint, secrets)
        if result.category == THROTTLED:
            services.message_pace.throttled(endpoint, result.retry_after_s or 0.0)
        succeeded, seconds = _HOST_ANSWERS_BY_CATEGORY.get(result.category, False), result.elapsed_s
    finally:
        services.host_gate.release(host, succeeded=succeeded, seconds=seconds)
    services.meter.webhook(result.category, result.elapsed_s)
    return result


async def _try(
    services: Services, delivery: Delivery, endpoint: WebhookEndpoint | None, secrets: Secrets | None
) -> DeliveryResult:
    now = services.clock.now()
    if endpoint is not None and not endpoint.kind.is_signed:
        return await services.notifier.notify(endpoint, delivery.id, delivery.body, now)
    return await services.webhook_sender.send(delivery.url, delivery.id, delivery.body, now, secrets)


async def _record_result(
    services: Services,
    job: Job,
    before: Delivery,
    endpoint: WebhookEndpoint | None,
    result: DeliveryResult,
    begun: datetime,
) -> Outcome:
    one = DeliveryTry(begun, result.category, result.status, round(result.elapsed_s * 1000))
    delivery = before.with_try(one, _problem(result))
    _log_try(delivery, result)
    if result.accepted:
        return await _delivered(services, job, before, delivery)
    if result.category == GONE:
        if endpoint is not None:
            await services.endpoint_cache.disable(endpoint, result.detail)
        return await _give_up(services, job, replace(delivery, tries=delivery.tries + 1))
    if result.category == REJECTED:
        return await _give_up(services, job, replace(delivery, tries=delivery.tries + 1))
    if before.is_early(begun):
        # The delivery was not due by its schedule, so this try does not count.
        return await _reschedule(services, delivery, result.retry_after_s or 0.0)
    return await _failed(services, job, replace(delivery, tries=delivery.tries + 1), result)


async def _delivered(services: Services, job: Job, before: Delivery, delivery: Delivery) -> Outcome:
    now = services.clock.now()
    wakes: tuple[NewJob, ...] = ()
    # A delivery that goes early does not wake others: one wakeup for all is enough.
    if before.tries and not before.is_early(now):
        waiting = await services.stores.outbox.waiting_with(delivery, RECOVERY_WAKE_MAX)
        wakes = tuple(map(services.job_factory.delivery_job, waiting))
    # The receiver is well, so the next delivery goes at once.
    await _save_try(services, DeliveryUpdate(delivery.accepted(now), job.id, None, wakes, WakesNext.ALWAYS))
    return Done(written=True)


async def _reschedule(services: Services, delivery: Delivery, retry_after_s: float) -> Outcome:
    now = services.clock.now()
    next_at = max(delivery.next_at or now, now + timedelta(seconds=retry_after_s))
    await _save_try(services, DeliveryUpdate(replace(delivery, next_at=next_at), wakes_next=WakesNext.IF_DUE))
    return Snooze(next_at - now, delivery.last_error)


async def _failed(services: Services, job: Job, delivery: Delivery, result: DeliveryResult) -> Outcome:
    now = services.clock.now()
    age_s = (now - delivery.first_due_at).total_seconds()
    delay_s = next_delay_s(delivery.tries, services.rng.random(), result.retry_after_s, age_s)
    if delay_s is None or now >= delivery.deadline:
        return await _give_up(services, job, delivery)
    delay = min(timedelta(seconds=delay_s), delivery.deadline - now)
    await _save_try(
        services, DeliveryUpdate(replace(delivery, next_at=now + delay), wakes_next=WakesNext.IF_DUE)
    )
    return Retry(delay, delivery.last_error)


async def _give_up(services: Services, job: Job, delivery: Delivery) -> Outcome:
    error = delivery.last_error
    await _save_try(
        services, DeliveryUpdate(delivery.dead_lettered(), job.id, error, wakes_next=WakesNext.IF_DUE)
    )
    return GiveUp(error, written=True)


async def _save_try(services: Services, update: DeliveryUpdate) -> None:
    without_job = await services.stores.outbox.record_try(update)
    if services.tracer.is_on and update.delivery.state is not DeliveryState.PENDING:
        services.tracer.record(delivery_span(update.delivery, services.clock.now()))
    if without_job:
        await services.stores.jobs.wake_or_enqueue([services.job_factory.delivery_job(without_job)])


def _host_of(delivery: Delivery) -> str:
    """Return the host that the gate counts: for mail, the one mail server."""
    parts = urlsplit(delivery.url)
    return parts.netloc.casefold() or parts.scheme


def _span(seconds: float) -> timedelta:
    # Rounded up: a job that comes back too early would come back many times.
    return timedelta(milliseconds=math.ceil(seconds * 1000))


def _log_try(delivery: Delivery, result: DeliveryResult) -> None:
    log.info(
        "webhook.tried",
        delivery_id=delivery.id,
        instance_id=delivery.instance_id,
        endpoint_id=delivery.endpoint_id,
        event_type=delivery.type,
        outcome=result.category,
        status=result.status,
        tries=delivery.tries + 1,
    )


def _problem(result: DeliveryResult) -> str:
    return "" if result.accepted else f"{result.category}: {result.detail}"


# A delivery that would wait longer asks again: the line may be shorter by then.
TURN_MAX_S = 30.0


# The oldest entries go first: they may belong to removed endpoints.
REMEMBERED_MAX = 100


@dataclass
class _Pace:
    bucket: TokenBucket
    # When the last waiting delivery may try.
    last_turn: float = 0.0


class MessagePace:
    """Limits the messages per second to each endpoint. No call blocks."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._paces: dict[str, _Pace] = {}

    def take(self, endpoint: WebhookEndpoint | None) -> float:
        """Take a turn and return 0, or return after how many seconds to ask again."""
        pace = self._pace_of(endpoint)
        if endpoint is None or pace is None:
            return 0.0
        now = self._clock.monotonic()
        if pace.bucket.take(now):
            return 0.0
        turn = max(pace.last_turn + 1 / endpoint.kind.messages_per_s, now + pace.bucket.wait_s(now))
        if turn - now > TURN_MAX_S:
            # The line is full; later deliveries form a new line behind it.
            pace.last_turn = now
            return TURN_MAX_S
        pace.last_turn = turn
        return turn - now

    def give_back(self, endpoint: WebhookEndpoint | None) -> None:
        """Return a turn that was not used."""
        if pace := self._pace_of(endpoint):
            pace.bucket.give_back()

    def throttled(self, endpoint: WebhookEndpoint | None, pause_s: float) -> None:
        """Slow down after the receiver rejected a message, and pause for `pause_s`."""
        if pace := self._pace_of(endpoint):
            pace.bucket.throttle(self._clock.monotonic(), pause_s)

    def _pace_of(self, endpoint: WebhookEndpoint | None) -> _Pace | None:
        if endpoint is None or not endpoint.kind.messages_per_s:
            return None
        found = self._paces.get(endpoint.id)
        if found is None:
            bucket = TokenBucket(endpoint.kind.messages_per_s, 1, self._clock.monotonic())
            found = self._paces[endpoint.id] = _Pace(bucket)
            if len(self._paces) > REMEMBERED_MAX:
                del self._paces[next(iter(self._paces))]
        return found
