"""Try one webhook delivery, and decide when to try again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
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
from gpuherd.ports.clock_port import Clock, Random
from gpuherd.ports.job_port import Jobs
from gpuherd.ports.telemetry_port import (
    Meter,
    NullMeter,
    NullTracer,
    Tracer,
)
from gpuherd.ports.webhook_port import (
    DeliveryResult,
    DeliveryUpdate,
    Notifier,
    Outbox,
    WakesNext,
    WebhookSender,
)
from gpuherd.resilience.per_host_limit import HostGate
from gpuherd.resilience.token_bucket import TokenBucket
from gpuherd.usecases.events.manage_webhooks import EndpointCache, KeyWebhookSecrets
from gpuherd.usecases.service.make_jobs import JobFactory

log = structlog.get_logger()
Secrets = tuple[Secret, ...]


# When a receiver is back, so many of those that wait for it go at once; the others on their schedule.
RECOVERY_WAKE_MAX = 200


GONE = "gone"
THROTTLED = "throttled"


# The receiver will never take this very message; others it may.
REJECTED = "rejected"


# The host answers, whatever it says; what we did not even try says nothing about it.
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


@dataclass(frozen=True, kw_only=True)
class DeliverWebhook:
    """The handler of `send_webhook`.

    Nobody waits in here for an ejected host, nor for more than a moment for a busy one: that would take a
    worker's place from other receivers.
    """

    outbox: Outbox
    sender: WebhookSender
    notifier: Notifier
    endpoint_cache: EndpointCache
    key_secrets: KeyWebhookSecrets
    gate: HostGate
    pace: MessagePace
    book: Jobs
    job_factory: JobFactory
    clock: Clock
    rng: Random
    meter: Meter = field(default_factory=NullMeter)
    tracer: Tracer = field(default_factory=NullTracer)

    async def __call__(self, job: Job) -> Outcome:
        queued = await self.outbox.queued(job.payload["deliveryId"])
        delivery = queued.delivery
        endpoint = await self.endpoint_cache.find(delivery.endpoint_id) if delivery.endpoint_id else None
        secrets = await self._secrets(queued, endpoint)
        host = _host_of(delivery)
        receiver = Receiver(endpoint, secrets != (), self.gate.ejected_s(host))
        match dispatch(queued, receiver, self.clock.now()):
            case AlreadySettled():
                return Done()
            case DeadLetter(error):
                return await self._give_up(job, replace(delivery, last_error=error))
            case Postpone(seconds, reason):
                return Snooze(_span(seconds), reason)
            case WaitForEarlier(earlier):
                if earlier is not None:
                    await self.book.wake_or_enqueue([self.job_factory.delivery_job(earlier)])
                return Snooze(OUT_OF_ORDER_RETRY, "an earlier event of this instance goes first")
            case SendNow():
                if wait_s := self.pace.take(endpoint):
                    return Snooze(_span(wait_s), "the receiver takes so many messages a second")
                if wait_s := await self.gate.acquire(host):
                    self.pace.give_back(endpoint)
                    return Snooze(_span(wait_s), "the receiver's host is busy with others")
        begun = self.clock.now()
        result = await self._send(delivery, endpoint, secrets, host)
        if self.tracer.is_on:
            self.tracer.record(try_span(delivery, result.category, result.status, begun, self.clock.now()))
        return await self._record_result(job, delivery, endpoint, result, begun)

    async def _secrets(self, queued: QueuedDelivery, endpoint: WebhookEndpoint | None) -> Secrets | None:
        if endpoint is not None:
            return self.endpoint_cache.secrets(endpoint) if endpoint.kind.is_signed else None
        return None if queued.delivery.endpoint_id else await self.key_secrets.signing(queued.owner)

    async def _send(
        self, delivery: Delivery, endpoint: WebhookEndpoint | None, secrets: Secrets | None, host: str
    ) -> DeliveryResult:
        succeeded, seconds = None, 0.0
        try:
            result = await self._try(delivery, endpoint, secrets)
            if result.category == THROTTLED:
                self.pace.throttled(endpoint, result.retry_after_s or 0.0)
            succeeded, seconds = _HOST_ANSWERS_BY_CATEGORY.get(result.category, False), result.elapsed_s
        finally:
            self.gate.release(host, succeeded=succeeded, seconds=seconds)
        self.meter.webhook(result.category, result.elapsed_s)
        return result

    async def _try(
        self, delivery: Delivery, endpoint: WebhookEndpoint | None, secrets: Secrets | None
    ) -> DeliveryResult:
        now = self.clock.now()
        if endpoint is not None and not endpoint.kind.is_signed:
            return await self.notifier.notify(endpoint, delivery.id, delivery.body, now)
        return await self.sender.send(delivery.url, delivery.id, delivery.body, now, secrets)

    async def _record_result(
        self,
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
            return await self._delivered(job, before, delivery)
        if result.category == GONE:
            if endpoint is not None:
                await self.endpoint_cache.disable(endpoint, result.detail)
            return await self._give_up(job, replace(delivery, tries=delivery.tries + 1))
        if result.category == REJECTED:
            return await self._give_up(job, replace(delivery, tries=delivery.tries + 1))
        if before.is_early(begun):
            # Not yet due by the schedule, so it does not count: it was only worth a look.
            return await self._reschedule(delivery, result.retry_after_s or 0.0)
        return await self._failed(job, replace(delivery, tries=delivery.tries + 1), result)

    async def _delivered(self, job: Job, before: Delivery, delivery: Delivery) -> Outcome:
        now = self.clock.now()
        wakes: tuple[NewJob, ...] = ()
        # Those that go early because of this wake no others: one wakeup for all is enough.
        if before.tries and not before.is_early(now):
            waiting = await self.outbox.waiting_with(delivery, RECOVERY_WAKE_MAX)
            wakes = tuple(map(self.job_factory.delivery_job, waiting))
        # The receiver is well, so the next one goes whatever its schedule says.
        await self._record(DeliveryUpdate(delivery.accepted(now), job.id, None, wakes, WakesNext.ALWAYS))
        return Done(written=True)

    async def _reschedule(self, delivery: Delivery, retry_after_s: float) -> Outcome:
        now = self.clock.now()
        next_at = max(delivery.next_at or now, now + timedelta(seconds=retry_after_s))
        await self._record(DeliveryUpdate(replace(delivery, next_at=next_at), wakes_next=WakesNext.IF_DUE))
        return Snooze(next_at - now, delivery.last_error)

    async def _failed(self, job: Job, delivery: Delivery, result: DeliveryResult) -> Outcome:
        now = self.clock.now()
        age_s = (now - delivery.first_due_at).total_seconds()
        delay_s = next_delay_s(delivery.tries, self.rng.random(), result.retry_after_s, age_s)
        if delay_s is None or now >= delivery.deadline:
            return await self._give_up(job, delivery)
        delay = min(timedelta(seconds=delay_s), delivery.deadline - now)
        await self._record(
            DeliveryUpdate(replace(delivery, next_at=now + delay), wakes_next=WakesNext.IF_DUE)
        )
        return Retry(delay, delivery.last_error)

    async def _give_up(self, job: Job, delivery: Delivery) -> Outcome:
        error = delivery.last_error
        await self._record(
            DeliveryUpdate(delivery.dead_lettered(), job.id, error, wakes_next=WakesNext.IF_DUE)
        )
        return GiveUp(error, written=True)

    async def _record(self, update: DeliveryUpdate) -> None:
        without_job = await self.outbox.record_try(update)
        if self.tracer.is_on and update.delivery.state is not DeliveryState.PENDING:
            self.tracer.record(delivery_span(update.delivery, self.clock.now()))
        if without_job:
            await self.book.wake_or_enqueue([self.job_factory.delivery_job(without_job)])


def _host_of(delivery: Delivery) -> str:
    """Return the name of the host that the gate counts: for mail, the one server that takes all of it."""
    parts = urlsplit(delivery.url)
    return parts.netloc.casefold() or parts.scheme


def _span(seconds: float) -> timedelta:
    # Rounded up: who comes back a moment too early would come back again and again.
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


# Who comes later than that asks again: the line may be shorter by then.
TURN_MAX_S = 30.0


# Those of removed endpoints are forgotten, oldest first.
REMEMBERED_MAX = 100


@dataclass
class _Pace:
    bucket: TokenBucket
    # When the last of those who wait may try.
    last_turn: float = 0.0


class MessagePace:
    """Non-blocking: says at once whether a message may go, or after how many seconds to ask again."""

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
            # The line is as long as anybody can foresee; the others form a new one behind it.
            pace.last_turn = now
            return TURN_MAX_S
        pace.last_turn = turn
        return turn - now

    def give_back(self, endpoint: WebhookEndpoint | None) -> None:
        """A turn was not used after all."""
        if pace := self._pace_of(endpoint):
            pace.bucket.give_back()

    def throttled(self, endpoint: WebhookEndpoint | None, pause_s: float) -> None:
        """It was too much all the same: be slower, and let nobody go for so long."""
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
