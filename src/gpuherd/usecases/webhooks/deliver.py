"""Deliver: send one webhook; try again on the schedule until the receiver takes it or none is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import structlog

from gpuherd.clock import Clock, Random
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.fast_replace import replace
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryState, DeliveryTry
from gpuherd.domain.webhooks.endpoint import WebhookEndpoint
from gpuherd.domain.webhooks.retry_schedule import next_delay_s
from gpuherd.jobs.job import Job
from gpuherd.jobs.outcome import Done, GiveUp, Outcome, Retry, Snooze
from gpuherd.ports.instances import Outbox
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.metrics import Meter, NullMeter
from gpuherd.ports.webhooks import DeliveryResult, WebhookSender
from gpuherd.resilience.host_gate import HostGate
from gpuherd.usecases.jobs.kinds import JobFactory
from gpuherd.usecases.webhooks.endpoints import EndpointCache

log = structlog.get_logger()

Secrets = tuple[Secret, ...]

# A delivery that waits for an earlier one is woken when that one has been tried; this is for lost wakeups.
OUT_OF_ORDER_RETRY = timedelta(seconds=15)
# An earlier event that failed so short a time ago would fail again.
RECENT_FAILURE_WINDOW = timedelta(seconds=60)
# When a receiver is back, so many of those that wait for it go at once; the others on their schedule.
RECOVERY_WAKE_MAX = 200
# Another replica may have it, or somebody rotates the secret.
MISSING_KEY_RETRY_S = 60.0
GONE = "gone"
# The host answers, whatever it says; what we did not even try says nothing about it.
_HOST_ANSWERS_BY_CATEGORY = {
    "ok": True,
    "redirect": True,
    GONE: True,
    "http_4xx": True,
    "blocked_target": None,
}


@dataclass(frozen=True)
class DeliverWebhook:
    """The handler of `send_webhook`.

    Nobody waits in here for a busy or ejected host: that would take a worker's place from other receivers.
    """

    outbox: Outbox
    sender: WebhookSender
    endpoint_cache: EndpointCache
    gate: HostGate
    book: Jobs
    job_factory: JobFactory
    clock: Clock
    chance: Random
    meter: Meter = field(default_factory=NullMeter)

    async def __call__(self, job: Job) -> Outcome:
        delivery = await self.outbox.get(job.payload["deliveryId"])
        if delivery.state is not DeliveryState.PENDING:
            return Done()
        endpoint = await self.endpoint_cache.find(delivery.endpoint_id) if delivery.endpoint_id else None
        if closed := await self._closed(delivery, endpoint):
            return await self._give_up(replace(delivery, last_error=closed))
        secrets = self.endpoint_cache.secrets(endpoint) if endpoint else None
        host = urlsplit(delivery.url).netloc.casefold()
        if obstacle := await self._obstacle(delivery, secrets, host):
            return obstacle
        begun = self.clock.now()
        result = await self._send(delivery, secrets, host)
        outcome = await self._record_result(delivery, endpoint, result, begun)
        await self._wake_next(delivery, result)
        return outcome

    async def _obstacle(self, delivery: Delivery, secrets: Secrets | None, host: str) -> Outcome | None:
        """Return what to answer if it cannot go now; if it can, a seat is taken at the gate."""
        if secrets == ():
            return await self._wait(delivery, MISSING_KEY_RETRY_S, "the endpoint's root key is not here")
        if ejected_s := self.gate.ejected_s(host):
            return await self._wait(delivery, ejected_s, "the receiver's host has failed too often lately")
        if not await self._is_in_order(delivery):
            return Snooze(OUT_OF_ORDER_RETRY, "an earlier event of this instance goes first")
        if wait_s := self.gate.try_acquire(host):
            return Snooze(_span(wait_s), "the receiver's host is busy with others")
        return None

    async def _closed(self, delivery: Delivery, endpoint: WebhookEndpoint | None) -> str:
        """Return why nothing can be sent there any more, or nothing if it can."""
        if delivery.endpoint_id is None:
            # Who asks for a replay wants to know how it is now.
            gone = not delivery.replays and await self.outbox.is_gone(delivery)
            return f"{GONE}: the receiver answered 410 to an earlier event" if gone else ""
        if endpoint is None:
            return "removed: the endpoint is no longer there"
        return "" if endpoint.is_enabled else f"disabled: {endpoint.disabled_reason}"

    async def _wait(self, delivery: Delivery, seconds: float, why: str) -> Outcome:
        """Wait for better times, which uses up no try, but not for ever."""
        if self.clock.now() < delivery.deadline:
            return Snooze(_span(seconds), why)
        return await self._give_up(replace(delivery, last_error=f"expired: {why}"))

    async def _is_in_order(self, delivery: Delivery) -> bool:
        """Tell whether it may go now: in order, as first tries and as repeats after an outage.

        One that always fails holds up those behind it for no longer than a try takes.
        """
        if not await self.outbox.is_next(delivery):
            return False
        if not delivery.tries:
            return True
        earlier = await self.outbox.waiting_before(delivery)
        if earlier is None or (
            earlier.tried_at and self.clock.now() - earlier.tried_at < RECENT_FAILURE_WINDOW
        ):
            return True
        await self._wake([earlier])
        return False

    async def _wake_next(self, delivery: Delivery, result: DeliveryResult) -> None:
        """Wake the next delivery if it waits only for its order, or if the receiver is well again."""
        following = await self.outbox.next_after(delivery)
        if following is not None and (result.accepted or not following.is_early(self.clock.now())):
            await self._wake([following])

    async def _wake(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await self.book.wake_or_enqueue([self.job_factory.delivery_job(it) for it in deliveries])

    async def _send(self, delivery: Delivery, secrets: Secrets | None, host: str) -> DeliveryResult:
        succeeded, seconds = None, 0.0
        try:
            result = await self.sender.send(
                delivery.url, delivery.id, delivery.body, self.clock.now(), secrets
            )
            succeeded, seconds = _HOST_ANSWERS_BY_CATEGORY.get(result.category, False), result.elapsed_s
        finally:
            self.gate.release(host, succeeded=succeeded, seconds=seconds)
        self.meter.webhook(result.category, result.elapsed_s)
        return result

    async def _record_result(
        self, before: Delivery, endpoint: WebhookEndpoint | None, result: DeliveryResult, begun: datetime
    ) -> Outcome:
        one = DeliveryTry(begun, result.category, result.status, round(result.elapsed_s * 1000))
        delivery = before.with_try(one, _problem(result))
        _log_try(delivery, result)
        if result.accepted:
            return await self._delivered(before, delivery)
        if result.category == GONE:
            if endpoint is not None:
                await self.endpoint_cache.disable(endpoint, "the receiver answered 410")
            return await self._give_up(replace(delivery, tries=delivery.tries + 1))
        if before.is_early(begun):
            # Not yet due by the schedule, so it does not count: it was only worth a look.
            return await self._reschedule(delivery, result.retry_after_s or 0.0)
        return await self._failed(replace(delivery, tries=delivery.tries + 1), result)

    async def _delivered(self, before: Delivery, delivery: Delivery) -> Outcome:
        now = self.clock.now()
        await self.outbox.save(delivery.accepted(now))
        # Those that go early because of this wake no others: one wakeup for all is enough.
        if before.tries and not before.is_early(now):
            await self._wake(await self.outbox.waiting_with(delivery, RECOVERY_WAKE_MAX))
        return Done()

    async def _reschedule(self, delivery: Delivery, retry_after_s: float) -> Outcome:
        now = self.clock.now()
        next_at = max(delivery.next_at or now, now + timedelta(seconds=retry_after_s))
        await self.outbox.save(replace(delivery, next_at=next_at))
        return Snooze(next_at - now, delivery.last_error)

    async def _failed(self, delivery: Delivery, result: DeliveryResult) -> Outcome:
        now = self.clock.now()
        age_s = (now - delivery.first_due_at).total_seconds()
        delay_s = next_delay_s(delivery.tries, self.chance.random(), result.retry_after_s, age_s)
        if delay_s is None or now >= delivery.deadline:
            return await self._give_up(delivery)
        delay = min(timedelta(seconds=delay_s), delivery.deadline - now)
        await self.outbox.save(replace(delivery, next_at=now + delay))
        return Retry(delay, delivery.last_error)

    async def _give_up(self, delivery: Delivery) -> Outcome:
        await self.outbox.save(delivery.dead_lettered())
        return GiveUp(delivery.last_error)


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
