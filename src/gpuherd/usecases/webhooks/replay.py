"""Replay: send what was sent, or was given up, once more, with the same id and the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from gpuherd.clock import Clock
from gpuherd.domain.webhooks.delivery import Delivery
from gpuherd.jobs.job import NewJob
from gpuherd.ports.webhooks import DeliveryFilter, DeliveryLog, DeliveryQuery, Outbox
from gpuherd.usecases.jobs.kinds import JobFactory

REPLAY_BATCH = 100


@dataclass(frozen=True)
class ReplayWebhooks:
    """One that still waits for its next try is only brought forward."""

    outbox: Outbox
    log: DeliveryLog
    job_factory: JobFactory
    clock: Clock

    async def one(self, delivery_id: str) -> Delivery:
        """Replay one delivery, whatever became of it, and return it; `NotFound` if there is none."""
        delivery = await self.outbox.get(delivery_id)
        await self.log.reopen(self._again([delivery]))
        return await self.outbox.get(delivery_id)

    async def since(self, moment: datetime, state: DeliveryFilter, endpoint_id: str | None = None) -> int:
        """Replay all that was made since then and failed, or was given up; return how many."""
        query = DeliveryQuery(
            state, endpoint_id=endpoint_id, since=moment, limit=REPLAY_BATCH, oldest_first=True
        )
        replayed = 0
        while True:
            page = await self.log.page(query)
            await self.log.reopen(self._again(page.deliveries))
            replayed += len(page.deliveries)
            if page.next_cursor is None:
                return replayed
            query = replace(query, cursor=page.next_cursor)

    def _again(self, deliveries: Iterable[Delivery]) -> list[tuple[Delivery, NewJob]]:
        now = self.clock.now()
        return [(it.reset_for_replay(now), self.job_factory.delivery_job(it)) for it in deliveries]
