"""The ledger: spans, bills, label keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.ledger_tables import (
    IS_OPEN,
    bill,
    cost_centre,
    ledger_label,
    ledger_subject,
    meter,
)
from gpuherd.adapters.sql.rental_tables import instance
from gpuherd.adapters.stores.leader_fence import FencedDatabase
from gpuherd.adapters.stores.ledger_report import instances_in, make_report, metered_sums
from gpuherd.adapters.stores.ledger_sql import hourly_sum
from gpuherd.adapters.stores.usage_span_writes import span_of, subject_of, write_spans
from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import CostKind, CostSpan, CostSubject
from gpuherd.ports.costs_port import (
    LABEL_KEYS_MAX,
    BilledDay,
    CostQuery,
    CostReport,
    MeteredMachine,
    OpenSpan,
)

_going_on = meter.alias("going_on")
_WITH_OPEN = sa.select(_going_on.c.subject_id).where(_going_on.c.ended_lo.is_(None))


class SqlCosts:
    """The port `Costs`."""

    def __init__(self, database: Database | FencedDatabase):
        self._database = database

    async def report(self, query: CostQuery, now: datetime) -> CostReport:
        return await self._database.read(lambda c: make_report(c, query, now))

    async def label_keys(self, period: Period, now: datetime, owner: str | None = None) -> Sequence[str]:
        return await self._database.read(lambda c: read_label_keys(c, period, now, owner))

    async def open_spans(
        self, owner: str | None = None, *, kind: CostKind | None = None
    ) -> Sequence[OpenSpan]:
        return await self._database.read(lambda c: _open_spans(c, owner, kind))

    async def hourly_now(self, owner: str | None = None) -> int:
        query = hourly_sum(owner is not None)
        return await self._database.read(lambda c: int(c.execute(query, {"owner": owner}).scalar_one()))

    async def earlier(self, owner: str | None = None) -> Mapping[str, int]:
        whose = [] if owner is None else [cost_centre.c.owner == owner]
        key = sa.func.coalesce(ledger_subject.c.instance_id, ledger_subject.c.cloud_id)
        query = (
            sa.select(key.label("key"), sa.func.sum(meter.c.amount_nusd).label("amount"))
            .select_from(
                meter.join(ledger_subject, ledger_subject.c.id == meter.c.subject_id).join(
                    cost_centre, cost_centre.c.id == meter.c.centre_id
                )
            )
            .where(
                meter.c.ended_lo.is_not(None),
                meter.c.subject_id.in_(_WITH_OPEN),
                *whose,
            )
            .group_by(key)
        )
        return await self._database.read(lambda c: {row.key: int(row.amount) for row in c.execute(query)})

    async def spans_of(self, instance_id: str) -> Sequence[CostSpan]:
        query = sa.select(meter).where(meter.c.instance_id == instance_id).order_by(meter.c.id)
        return await self._database.read(lambda c: [span_of(row) for row in c.execute(query)])

    async def metered(self, period: Period, now: datetime) -> Sequence[MeteredMachine]:
        def work(connection: sa.Connection) -> Sequence[MeteredMachine]:
            return [
                MeteredMachine(cloud_id, instance_id, CostKind(kind), amount, doubt, *rates)
                for cloud_id, instance_id, kind, amount, doubt, *rates in metered_sums(
                    connection, period, now
                )
                if amount or doubt
            ]

        return await self._database.read(work)

    async def write(
        self, spans: Sequence[CostSpan], subjects: Mapping[str, CostSubject], now: datetime
    ) -> None:
        await self._database.write(lambda c: write_spans(c, spans, subjects, now))

    async def save_bill(self, day: date, rows: Sequence[BilledDay]) -> None:
        def work(connection: sa.Connection) -> None:
            connection.execute(sa.delete(bill).where(bill.c.day == day))
            if rows:
                connection.execute(sa.insert(bill), [vars(it) for it in rows])

        await self._database.write(work)

    async def bill(self, first: date, last: date) -> Sequence[BilledDay]:
        query = (
            sa.select(bill)
            .where(bill.c.day >= first, bill.c.day <= last)
            .order_by(bill.c.day, bill.c.cloud_id, bill.c.category)
        )
        return await self._database.read(lambda c: [BilledDay(**row._mapping) for row in c.execute(query)])


def _open_spans(connection: sa.Connection, owner: str | None, kind: CostKind | None) -> Sequence[OpenSpan]:
    subject = ledger_subject.c
    which = [] if owner is None else [cost_centre.c.owner == owner]
    which += [] if kind is None else [meter.c.kind == kind.value]
    query = (
        sa.select(
            meter,
            subject.instance_id.label("subject_instance_id"),
            subject.lineage,
            subject.name,
            subject.created_at,
            sa.func.coalesce(subject.usable_at, instance.c.ready_at, type_=instance.c.ready_at.type).label(
                "usable_at"
            ),
            cost_centre.c.owner,
            cost_centre.c.product_name,
            cost_centre.c.region,
            cost_centre.c.billing_mode,
        )
        .select_from(
            meter.join(ledger_subject, subject.id == meter.c.subject_id)
            .join(cost_centre, cost_centre.c.id == meter.c.centre_id)
            .outerjoin(instance, instance.c.id == subject.instance_id)
        )
        .where(IS_OPEN, *which)
        .order_by(meter.c.cloud_id, meter.c.kind)
    )
    rows = connection.execute(query).all()
    labels: dict[int, dict[str, str]] = defaultdict(dict)
    if rows:
        ids = sa.select(meter.c.centre_id).where(IS_OPEN)
        for row in connection.execute(sa.select(ledger_label).where(ledger_label.c.centre_id.in_(ids))):
            labels[row.centre_id][row.key] = row.value
    return [OpenSpan(span_of(row), subject_of(row, labels[row.centre_id])) for row in rows]


def read_label_keys(
    connection: sa.Connection, period: Period, now: datetime, owner: str | None
) -> Sequence[str]:
    """Return them, those of the most instances first."""
    counted: Counter[str] = Counter()
    for there in instances_in(period, now):
        for row in connection.execute(_counted(there, owner)):
            counted[row.key] += row.instances
    return sorted(counted, key=lambda it: (-counted[it], it))[:LABEL_KEYS_MAX]


def _counted(there: sa.ColumnElement[bool], owner: str | None) -> sa.Select[tuple[str, int]]:
    subject, label = ledger_subject.c, ledger_label.c
    # Instances share their centres: those are few, and labels are read for these only.
    by_centre = (
        sa.select(subject.centre_id, sa.func.count().label("instances"))
        .where(there)
        .group_by(subject.centre_id)
        .subquery("by_centre")
    )
    joined = by_centre.join(ledger_label, label.centre_id == by_centre.c.centre_id)
    query = sa.select(label.key, sa.func.sum(by_centre.c.instances).label("instances")).group_by(label.key)
    if owner is None:
        return query.select_from(joined)
    joined = joined.join(cost_centre, cost_centre.c.id == by_centre.c.centre_id)
    return query.select_from(joined).where(cost_centre.c.owner == owner)
