"""The outbox, the log of deliveries, and the endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import instance
from gpuherd.adapters.sql.service_tables import delivery
from gpuherd.adapters.sql.service_tables import webhook_endpoint as table
from gpuherd.adapters.stores import job_store
from gpuherd.adapters.stores.audit_store import append_audit_record, lock_audit_log
from gpuherd.adapters.stores.row_codec import delivery_from, delivery_of, delivery_row
from gpuherd.domain.api_key import ADMIN_ID
from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.job import NewJob, delivery_key
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryState, QueuedDelivery
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind, WebhookEndpoint
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.webhook_port import (
    DeliveryFilter,
    DeliveryPage,
    DeliveryQuery,
    DeliveryUpdate,
    WakesNext,
)

GONE = 410
_PENDING = DeliveryState.PENDING.value
_other = delivery.alias("other")


_ALONG = (
    _other.c.instance_id == delivery.c.instance_id,
    _other.c.url == delivery.c.url,
    _other.c.endpoint_id.is_not_distinct_from(delivery.c.endpoint_id),
)


_THIS = sa.select(delivery).where(delivery.c.id == sa.bindparam("its_id"))


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


_QUEUED = _THIS.add_columns(
    _LAST_ANSWER.label("last_answer"),
    _EARLIER.label("earlier_id"),
    _INSTANCE_OWNER.label("instance_owner"),
)


_NEXT = (
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
        return await self._database.write(lambda c: _record_try(c, update, now))


def write_delivery(connection: sa.Connection, it: Delivery) -> None:
    """Write down how a delivery stands; its bytes never change."""
    # guard: the bytes of a webhook never change
    row = {name: value for name, value in delivery_row(it).items() if name not in ("id", "body", "owner")}
    connection.execute(sa.update(delivery).where(delivery.c.id == it.id), row)


def _get(connection: sa.Connection, delivery_id: str) -> Delivery:
    row = connection.execute(_THIS, {"its_id": delivery_id}).first()
    if row is None:
        raise _not_found(delivery_id)
    return delivery_of(row)


def _queued(connection: sa.Connection, delivery_id: str) -> QueuedDelivery:
    row = connection.execute(_QUEUED, {"its_id": delivery_id}).first()
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


def _record_try(connection: sa.Connection, update: DeliveryUpdate, now: datetime) -> Delivery | None:
    """Write down how a try went. Return the next delivery if it has no job that can be woken."""
    write_delivery(connection, update.delivery)
    if update.finished_job is not None:
        if update.error is None:
            # guard: a webhook and the end of its job are one transaction
            job_store.finish_job(connection, update.finished_job, now)
        else:
            job_store.fail_job(connection, update.finished_job, now, update.error)
    if update.wakes:
        job_store.wake_or_insert_jobs(connection, update.wakes, now)
    following = _next_to_wake(connection, update, now)
    if following is None or job_store.wake_jobs(connection, [delivery_key(following.id)], now):
        return None
    return following


def _next_to_wake(connection: sa.Connection, update: DeliveryUpdate, now: datetime) -> Delivery | None:
    if update.wakes_next is WakesNext.NEVER:
        return None
    # Asked in this transaction: one that was not there when the try began may be waiting for it by now.
    row = connection.execute(_NEXT, {"its_id": update.delivery.id}).first()
    following = None if row is None else delivery_of(row)
    if following is None or (update.wakes_next is WakesNext.IF_DUE and following.is_early(now)):
        return None
    return following


def _not_found(delivery_id: str) -> NotFound:
    return NotFound(f"there is no delivery {delivery_id!r}", code="DELIVERY_NOT_FOUND")


# At once: others want to write too.
PRUNED_AT_ONCE = 1000


class SqlDeliveryLog:
    """The port `DeliveryLog`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def page(self, query: DeliveryQuery) -> DeliveryPage:
        where = _conditions(query)
        order = delivery.c.id.asc() if query.oldest_first else delivery.c.id.desc()
        # One row more than asked for tells whether there is a next page.
        rows = sa.select(delivery).where(*where, *_after(query)).order_by(order).limit(query.limit + 1)
        count = sa.select(sa.func.count()).select_from(delivery).where(*where)

        def work(connection: sa.Connection) -> DeliveryPage:
            found = [delivery_of(row) for row in connection.execute(rows)]
            shown = tuple(found[: query.limit])
            more = len(found) > query.limit
            return DeliveryPage(shown, connection.execute(count).scalar_one(), shown[-1].id if more else None)

        return await self._database.read(work)

    async def reopen(self, again: Sequence[tuple[Delivery, NewJob]]) -> None:
        now = self._clock.now()

        def work(connection: sa.Connection) -> None:
            woken = job_store.wake_jobs(connection, [new.key for _, new in again], now)
            for it, new in again:
                if new.key not in woken:
                    write_delivery(connection, it)
                    job_store.insert_job(connection, new, now)

        await self._database.write(work)

    async def prune(self, delivered_before: datetime, dead_before: datetime) -> int:
        limits = ((DeliveryState.DELIVERED, delivered_before), (DeliveryState.DEAD, dead_before))
        return sum([await self._prune(state, before) for state, before in limits])

    async def _prune(self, state: DeliveryState, before: datetime) -> int:
        # What was given up without a try has only the time at which it was made.
        ended_at = sa.func.coalesce(delivery.c.tried_at, delivery.c.delivered_at, delivery.c.created_at)
        old = sa.select(delivery.c.id).where(
            delivery.c.state == state.value, ended_at < sa.literal(before, delivery.c.created_at.type)
        )
        removal = sa.delete(delivery).where(delivery.c.id.in_(old.limit(PRUNED_AT_ONCE)))
        pruned = 0
        while removed := await self._database.write(lambda c: c.execute(removal).rowcount):
            pruned += removed
        return pruned


def _after(query: DeliveryQuery) -> list[sa.ColumnElement[bool]]:
    if query.cursor is None:
        return []
    return [delivery.c.id > query.cursor if query.oldest_first else delivery.c.id < query.cursor]


def _conditions(query: DeliveryQuery) -> list[sa.ColumnElement[bool]]:
    where: list[sa.ColumnElement[bool]] = []
    if query.state is DeliveryFilter.FAILED:
        waiting = sa.and_(delivery.c.state == DeliveryState.PENDING.value, delivery.c.tries > 0)
        where.append(sa.or_(waiting, delivery.c.state == DeliveryState.DEAD.value))
    elif query.state is not None:
        where.append(delivery.c.state == query.state.value)
    if query.instance_id is not None:
        where.append(delivery.c.instance_id == query.instance_id)
    if query.endpoint_id is not None:
        where.append(delivery.c.endpoint_id == query.endpoint_id)
    if query.owner is not None:
        where += [_is_owned_by(query.owner), delivery.c.endpoint_id.is_(None)]
    if query.type is not None:
        where.append(delivery.c.type == query.type)
    if query.since is not None:
        where.append(delivery.c.created_at >= query.since)
    return where


def _is_owned_by(owner: str) -> sa.ColumnElement[bool]:
    # Rows of an older version do not tell; as long as their instance is there, it does.
    instances = sa.select(instance.c.id).where(instance.c.owner == owner)
    return sa.or_(
        delivery.c.owner == owner, sa.and_(delivery.c.owner.is_(None), delivery.c.instance_id.in_(instances))
    )


class SqlWebhookEndpoints:
    """The port `WebhookEndpoints`."""

    def __init__(self, database: Database):
        self._database = database

    async def add(self, endpoint: WebhookEndpoint, audit_record: AuditRecord | None = None) -> None:
        row = _row(endpoint)

        def work(connection: sa.Connection) -> None:
            _audit(connection, audit_record)
            connection.execute(sa.insert(table).values(**row))

        await self._database.write(work, audited=audit_record is not None)

    async def get(self, endpoint_id: str) -> WebhookEndpoint:
        return await self._database.read(lambda c: _endpoints_get(c, endpoint_id))

    async def list_all(self) -> tuple[WebhookEndpoint, ...]:
        query = sa.select(table).order_by(table.c.id)
        return await self._database.read(lambda c: tuple(map(_endpoint_of, c.execute(query))))

    async def change(
        self, before: WebhookEndpoint, after: WebhookEndpoint, audit_record: AuditRecord | None = None
    ) -> None:
        row = _row(after)

        def work(connection: sa.Connection) -> None:
            lock_audit_log(connection, audit_record)
            if _endpoints_get(connection, before.id, lock=True) != before:
                raise StaleWrite(f"endpoint {before.id} has changed since it was read")
            _audit(connection, audit_record)
            connection.execute(sa.update(table).where(table.c.id == before.id).values(**row))

        await self._database.write(work, audited=audit_record is not None)

    async def remove(self, endpoint_id: str, audit_record: AuditRecord | None = None) -> None:
        def work(connection: sa.Connection) -> None:
            _audit(connection, audit_record)
            if not connection.execute(sa.delete(table).where(table.c.id == endpoint_id)).rowcount:
                raise _unknown(endpoint_id)

        await self._database.write(work, audited=audit_record is not None)


def _audit(connection: sa.Connection, audit_record: AuditRecord | None) -> None:
    if audit_record is not None:
        append_audit_record(connection, audit_record)


def _endpoints_get(connection: sa.Connection, endpoint_id: str, *, lock: bool = False) -> WebhookEndpoint:
    query = sa.select(table).where(table.c.id == endpoint_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise _unknown(endpoint_id)
    return _endpoint_of(row)


def _unknown(endpoint_id: str) -> NotFound:
    return NotFound(f"there is no webhook endpoint {endpoint_id!r}", code="WEBHOOK_ENDPOINT_NOT_FOUND")


def _row(it: WebhookEndpoint) -> dict[str, Any]:
    return {**vars(it), "events": " ".join(it.events), "kind": it.kind.value}


def _endpoint_of(row: sa.Row[Any]) -> WebhookEndpoint:
    read = {"events": tuple(row.events.split()), "kind": EndpointKind(row.kind)}
    return WebhookEndpoint(**{**row._mapping, **read})
