"""Deliver: send one webhook; try again on the schedule until the receiver takes it or none is left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog

from gpuherd.clock import Chance, Clock
from gpuherd.domain.delivery import DeliveryState
from gpuherd.domain.webhook_schedule import next_delay_s
from gpuherd.jobs.job import Job
from gpuherd.jobs.outcome import Done, GiveUp, Outcome, Retry, Snooze
from gpuherd.ports.meter import Meter, SilentMeter
from gpuherd.ports.store import Outbox
from gpuherd.ports.webhook_sender import DeliveryResult, WebhookSender

log = structlog.get_logger()

OUT_OF_TURN = timedelta(milliseconds=200)


@dataclass(frozen=True)
class DeliverWebhook:
    """The handler of `send_webhook`."""

    outbox: Outbox
    sender: WebhookSender
    clock: Clock
    chance: Chance
    meter: Meter = field(default_factory=SilentMeter)

    async def __call__(self, job: Job) -> Outcome:
        delivery = await self.outbox.get(job.payload["deliveryId"])
        if delivery.state is not DeliveryState.PENDING:
            return Done()
        if not await self.outbox.is_next(delivery):
            return Snooze(OUT_OF_TURN, "an earlier event of this instance goes first")
        result = await self.sender.send(delivery.url, delivery.id, delivery.body, self.clock.now())
        self.meter.webhook(result.category, result.elapsed_s)
        delivery = replace(
            delivery, tries=delivery.tries + 1, last_status=result.status, last_error=_problem(result)
        )
        log.info(
            "webhook.tried",
            delivery_id=delivery.id,
            instance_id=delivery.instance_id,
            event_type=delivery.type,
            outcome=result.category,
            status=result.status,
            tries=delivery.tries,
        )
        now = self.clock.now()
        if result.accepted:
            await self.outbox.save(
                replace(delivery, state=DeliveryState.DELIVERED, delivered_at=now, next_at=None)
            )
            return Done()
        delay_s = next_delay_s(delivery.tries, self.chance.random(), result.retry_after_s)
        if result.category == "gone" or delay_s is None:
            await self.outbox.save(replace(delivery, state=DeliveryState.DEAD, next_at=None))
            return GiveUp(delivery.last_error)
        delay = timedelta(seconds=delay_s)
        await self.outbox.save(replace(delivery, next_at=now + delay))
        return Retry(delay, delivery.last_error)


def _problem(result: DeliveryResult) -> str:
    return "" if result.accepted else f"{result.category}: {result.detail}"
