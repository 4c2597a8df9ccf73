"""Webhooks on their way, and single facts about the installation, in memory."""

from __future__ import annotations

from dataclasses import replace

from gpuherd.domain.api_key import ADMIN_ID
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import NotFound
from gpuherd.domain.job import delivery_key
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState, QueuedDelivery
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.webhook_port import DeliveryUpdate, WakesNext
from tests.support.memory.jobs import job_rows
from tests.support.memory.tables import Tables


class MemoryOutbox:
    """The port `Outbox`."""

    def __init__(self, tables: Tables, clock: Clock):
        self._tables = tables
        self._clock = clock

    async def get(self, delivery_id: str) -> Delivery:
        if delivery_id not in self._tables.deliveries:
            raise NotFound(f"there is no delivery {delivery_id!r}", code="DELIVERY_NOT_FOUND")
        return self._tables.deliveries[delivery_id]

    async def queued(self, delivery_id: str) -> QueuedDelivery:
        it = await self.get(delivery_id)
        # The untried ones first.
        earlier = min(self._before(it), key=lambda before: (before.tries > 0, before.sequence), default=None)
        row = self._tables.instances.get(it.instance_id)
        owner = it.owner or (ADMIN_ID if row is None else row.instance.owner)
        return QueuedDelivery(it, self._is_gone(it), earlier, owner)

    def _next_after(self, delivery: Delivery) -> Delivery | None:
        later = [
            it
            for it in self._pending_with(delivery)
            if it.instance_id == delivery.instance_id and it.sequence > delivery.sequence
        ]
        return min(later, key=lambda it: it.sequence, default=None)

    async def waiting_with(self, delivery: Delivery, limit: int) -> list[Delivery]:
        others = [it for it in self._pending_with(delivery) if it.tries and it.id != delivery.id]
        return sorted(others, key=lambda it: it.id)[:limit]

    def _is_gone(self, delivery: Delivery) -> bool:
        settled = [
            (it.tried_at, it.id, it.last_status)
            for it in self._tables.deliveries.values()
            if _same_receiver(it, delivery)
            and it.instance_id == delivery.instance_id
            and it.state is not DeliveryState.PENDING
            and it.tried_at
        ]
        return delivery.endpoint_id is None and bool(settled) and max(settled)[2] == 410

    def _before(self, delivery: Delivery) -> list[Delivery]:
        return [
            it
            for it in self._pending_with(delivery)
            if it.instance_id == delivery.instance_id and it.sequence < delivery.sequence
        ]

    def _pending_with(self, delivery: Delivery) -> list[Delivery]:
        return [
            it
            for it in self._tables.deliveries.values()
            if it.state is DeliveryState.PENDING and _same_receiver(it, delivery)
        ]

    async def save(self, delivery: Delivery) -> None:
        with self._tables as tables:
            _write(tables, delivery)

    async def record_try(self, update: DeliveryUpdate) -> Delivery | None:
        now = self._clock.now()
        with self._tables as tables:
            _write(tables, update.delivery)
            if update.finished_job is not None:
                if update.error is None:
                    job_rows.finish_job(tables, update.finished_job, now)
                else:
                    job_rows.fail_job(tables, update.finished_job, now, update.error)
            job_rows.wake_or_insert_jobs(tables, update.wakes, now)
            following = self._next_after(update.delivery)
            if following is None or update.wakes_next is WakesNext.NEVER:
                return None
            if update.wakes_next is WakesNext.IF_DUE and following.is_early(now):
                return None
            return None if job_rows.wake_job(tables, delivery_key(following.id), now) else following


def _write(tables: Tables, delivery: Delivery) -> None:
    known = tables.deliveries.get(delivery.id)
    if known is not None:
        tables.put(tables.deliveries, delivery.id, replace(delivery, body=known.body, owner=known.owner))


def _same_receiver(one: Delivery, other: Delivery) -> bool:
    return (one.endpoint_id, one.url) == (other.endpoint_id, other.url)


class MemoryFlags:
    """The port `Flags`."""

    def __init__(self, tables: Tables):
        self._tables = tables

    async def get(self, key: str) -> str | None:
        return self._tables.flags.get(key)

    async def first(self, *keys: str) -> str | None:
        return next((self._tables.flags[key] for key in keys if key in self._tables.flags), None)

    async def swap(
        self, key: str, old: str | None, new: str | None, audit_record: AuditRecord | None = None
    ) -> bool:
        if self._tables.flags.get(key) != old:
            return False
        await self.put(key, new, audit_record)
        return True

    async def put(self, key: str, value: str | None, audit_record: AuditRecord | None = None) -> None:
        with self._tables as tables:
            if audit_record is not None:
                tables.append_audit_record(audit_record)
            if value is None:
                tables.drop(tables.flags, key)
            else:
                tables.put(tables.flags, key, value)

    def ensure(self, key: str, fresh: str) -> str:
        """Return what is stored under `key`, storing `fresh` first if nothing is."""
        with self._tables as tables:
            if key not in tables.flags:
                tables.put(tables.flags, key, fresh)
        return self._tables.flags[key]
