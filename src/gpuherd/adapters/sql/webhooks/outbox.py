"""Webhooks on their way, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.engine.prepared_statements import PreparedStatement
from gpuherd.adapters.sql.jobs import job_rows
from gpuherd.adapters.sql.mapping.deliveries import delivery_from, delivery_of, delivery_row
from gpuherd.adapters.sql.schema.tables import delivery, instance
from gpuherd.clock import Clock
from gpuherd.domain.access.api_key import ADMIN_ID
from gpuherd.domain.errors import NotFound
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryState
from gpuherd.domain.webhooks.dispatch import QueuedDelivery
from gpuherd.jobs.job import delivery_key
from gpuherd.ports.webhooks import DeliveryUpdate, WakesNext

GONE = 410

_PENDING = DeliveryState.PENDING.value
_other = delivery.alias("other")
_ALONG = (
    _other.c.instance_id == delivery.c.instance_id,
    _other.c.url == delivery.c.url,
    _other.c.endpoint_id.is_not_distinct_from(delivery.c.endpoint_id),
)

# Made once: to put a statement together takes longer than to run it.
_THIS = sa.select(delivery).where(delivery.c.id == sa.bindparam("its_id"))
_BY_ID = PreparedStatement(_THIS)
# What the receiver has answered to the latest event of this instance that was settled.
_LAST_ANSWER = (
    sa.select(_other.c.last_status)
    .where(*_ALONG, _other.c.state != _PENDING, _other.c.tried_at.is_not(None))
    .order_by(_other.c.tried_at.desc(), _other.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_EARLIER = (
    sa.select(_other.c.id)
    .where(*_ALONG, _other.c.state == _PENDING, _other.c.sequence < delivery.c.sequence)
    .order_by(_other.c.tries > 0, _other.c.sequence)
    .limit(1)
    .scalar_subquery()
)
# For rows of an older version, which do not tell.
_INSTANCE_OWNER = sa.select(instance.c.owner).where(instance.c.id == delivery.c.instance_id).scalar_subquery()
_QUEUED = PreparedStatement(
    _THIS.add_columns(
        _LAST_ANSWER.label("last_answer"),
        _EARLIER.label("earlier_id"),
        _INSTANCE_OWNER.label("instance_owner"),
    )
)
_NEXT = PreparedStatement(
    sa.select(_other)
    .where(
        delivery.c.id == sa.bindparam("its_id"),
        *_ALONG,
        _other.c.state == _PENDING,
        _other.c.sequence > delivery.c.sequence,
    )
    .order_by(_other.c.sequence)
    .limit(1)
)
_WAITING_WITH = (
    sa.select(_other)
    .where(
        delivery.c.id == sa.bindparam("its_id"),
        _other.c.id != delivery.c.id,
        *_ALONG[1:],
        _other.c.state == _PENDING,
        _other.c.tries > 0,
    )
    .order_by(_other.c.id)
    .limit(sa.bindparam("most"))
)
# guard: the bytes of a webhook never change
_WRITE = PreparedStatement(
    sa.update(delivery).where(delivery.c.id == sa.bindparam("its_id")),
    *(it.name for it in delivery.columns if it.name not in ("id", "body", "owner")),
)


class SqlOutbox:
    """The port `Outbox`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def get(self, delivery_id: str) -> Delivery:
        return await self._database.read(lambda c: _get(c, delivery_id))

    async def queued(self, delivery_id: str) -> QueuedDelivery:
        return await self._database.read(lambda c: _queued(c, delivery_id))

    async def waiting_with(self, it: Delivery, limit: int) -> Sequence[Delivery]:
        wanted = {"its_id": it.id, "most": limit}
        return await self._database.read(
            lambda c: [delivery_of(row) for row in c.execute(_WAITING_WITH, wanted)]
        )

    async def save(self, it: Delivery) -> None:
        await self._database.write(lambda c: write_delivery(c, it))

    async def record_try(self, update: DeliveryUpdate) -> Delivery | None:
        now = self._clock.now()
        has_woken, without_job = await self._database.write(lambda c: _record_try(c, update, now))
        if has_woken:
            self._database.on_commit_wake()
        return without_job


def write_delivery(connection: sa.Connection, it: Delivery) -> None:
    """Write down how a delivery stands; its bytes never change."""
    _WRITE.count(connection, {"its_id": it.id, **delivery_row(it)})


def _get(connection: sa.Connection, delivery_id: str) -> Delivery:
    row = _BY_ID.first(connection, {"its_id": delivery_id})
    if row is None:
        raise _not_found(delivery_id)
    return delivery_of(row)


def _queued(connection: sa.Connection, delivery_id: str) -> QueuedDelivery:
    row = _QUEUED.first(connection, {"its_id": delivery_id})
    if row is None:
        raise _not_found(delivery_id)
    values = row._asdict()
    beside = ("last_answer", "earlier_id", "instance_owner")
    last_answer, earlier_id, instance_owner = (values.pop(name) for name in beside)
    it = delivery_from(values)
    # guard: a delivery knows whose secret signs it when its instance is forgotten
    return QueuedDelivery(
        it,
        is_gone=it.endpoint_id is None and last_answer == GONE,
        earlier=None if earlier_id is None else _get(connection, earlier_id),
        owner=it.owner or instance_owner or ADMIN_ID,
    )


def _record_try(
    connection: sa.Connection, update: DeliveryUpdate, now: datetime
) -> tuple[bool, Delivery | None]:
    """Write it down; tell whether a job was woken by it, and which delivery has none to be woken."""
    write_delivery(connection, update.delivery)
    if update.finished_job is not None:
        if update.error is None:
            # guard: a webhook and the end of its job are one transaction
            job_rows.finish_job(connection, update.finished_job, now)
        else:
            job_rows.fail_job(connection, update.finished_job, now, update.error)
    if update.wakes:
        job_rows.wake_or_insert_jobs(connection, update.wakes, now)
    following = _next_to_wake(connection, update, now)
    if following is None:
        return bool(update.wakes), None
    if not job_rows.wake_jobs(connection, [delivery_key(following.id)], now):
        return bool(update.wakes), following
    job_rows.notify(connection, now)
    return True, None


def _next_to_wake(connection: sa.Connection, update: DeliveryUpdate, now: datetime) -> Delivery | None:
    if update.wakes_next is WakesNext.NEVER:
        return None
    # Asked in this transaction: one that was not there when the try began may be waiting for it by now.
    row = _NEXT.first(connection, {"its_id": update.delivery.id})
    following = None if row is None else delivery_of(row)
    if following is None or (update.wakes_next is WakesNext.IF_DUE and following.is_early(now)):
        return None
    return following


def _not_found(delivery_id: str) -> NotFound:
    return NotFound(f"there is no delivery {delivery_id!r}", code="DELIVERY_NOT_FOUND")
