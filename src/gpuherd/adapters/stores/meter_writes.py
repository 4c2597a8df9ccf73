"""Keeps the meters, in the transaction of the list that has shown something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import chunks
from gpuherd.adapters.sql.ledger_tables import (
    IS_DOUBTFUL,
    IS_OPEN,
    IS_UNPRICED,
    meter,
)
from gpuherd.adapters.sql.rental_tables import (
    attempt,
    installation,
    instance,
    sighting,
)
from gpuherd.adapters.sql.sql_types import dumps, insert_into, to_micros
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.row_codec import attempt_of
from gpuherd.adapters.stores.usage_span_writes import (
    SEAMS_KEY,
    SpanWriter,
    read_seams,
    span_of,
)
from gpuherd.domain.clock_reading import ClockSeam
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.instance.rent_attempt import machine_tag
from gpuherd.domain.money.meter import (
    Metering,
    MeterState,
    cut_all,
    meters_of,
    read_meters,
)
from gpuherd.domain.money.meter_reading import MachineRecord, record_of, subject_of
from gpuherd.domain.money.span_rules import is_unpriced
from gpuherd.domain.money.usage_span import CostKind, CostSpan


def keep_meters(
    connection: sa.Connection, metering: Metering, changed: Sequence[ObservedMachine]
) -> list[str]:
    """Open and close what a list says; return the instances whose cost has changed by it."""
    charged: list[str] = []
    now = metering.this.finished_at
    if metering.seam is not None:
        charged += _cut_everything(connection, metering, metering.seam)
    writer = SpanWriter(connection)
    # Part by part: what is on record about a hundred thousand machines fills gigabytes.
    for part in chunks([*changed, *metering.also]):
        _read_part(connection, metering, part, writer)
    return charged + writer.finish(now)


def _read_part(
    connection: sa.Connection, metering: Metering, seen: Sequence[ObservedMachine], writer: SpanWriter
) -> None:
    machines = {it.machine.cloud_id: it.machine for it in seen}
    records = _records(connection, machines)
    terms = {
        cloud_id: agreed
        for cloud_id, record in records.items()
        if (agreed := record.terms_of(machines[cloud_id])) is not None
    }
    orders = {it: at for it, record in records.items() if (at := record.ordered_at) is not None}
    spans = read_meters(metering, seen, meters_of(_spans(connection, list(machines))), terms, orders)
    subjects = {
        it.machine.cloud_id: subject_of(it.machine, it.first_seen_at, records.get(it.machine.cloud_id))
        for it in seen
    }
    writer.put(spans, subjects)


def read_meter_state(connection: sa.Connection) -> MeterState:
    """Return what the meters need to know at a start."""
    # Volumes have looks of their own, and are never in a list of machines.
    is_machine = meter.c.kind != CostKind.VOLUME.value
    odd = [
        span_of(row)
        for where in (IS_UNPRICED, sa.and_(IS_DOUBTFUL, is_machine))
        for row in connection.execute(sa.select(meter).where(where))
    ]
    return MeterState(
        read_seams(connection),
        unpriced=frozenset(it.cloud_id for it in odd if is_unpriced(it)),
        unclear=frozenset(it.cloud_id for it in odd if not is_unpriced(it)),
    )


def read_unmetered(connection: sa.Connection) -> set[str]:
    """Return which machines were listed last and have no span of their GPUs that goes on."""
    going_on = sa.exists().where(
        meter.c.cloud_id == sighting.c.cloud_id, IS_OPEN, meter.c.kind == CostKind.GPU.value
    )
    query = sa.select(sighting.c.cloud_id).where(sighting.c.missing_since.is_(None), ~going_on)
    return set(connection.execute(query).scalars())


def _cut_everything(connection: sa.Connection, metering: Metering, seam: ClockSeam) -> list[str]:
    going_on = connection.scalars(sa.select(meter.c.cloud_id).where(IS_OPEN).distinct()).all()
    known = [metering.before[it] for it in going_on if it in metering.before]
    writer = SpanWriter(connection)
    for part in chunks(known):
        machines = {it.machine.cloud_id: it.machine for it in part}
        records = _records(connection, machines)
        subjects = {
            it.machine.cloud_id: subject_of(it.machine, it.first_seen_at, records.get(it.machine.cloud_id))
            for it in part
        }
        spans = (it for it in _spans(connection, list(machines)) if it.ended is None)
        writer.put(cut_all(spans, seam, metering.previous), subjects)
    seams = dumps(
        [[to_micros(at) for at in (it.before, it.after, it.noticed_at)] for it in metering.all_seams]
    )
    row = insert_into(connection, installation).values(key=SEAMS_KEY, value=seams)
    connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": seams}))
    return writer.finish(metering.this.finished_at)


def _spans(connection: sa.Connection, cloud_ids: Sequence[str]) -> Iterable[CostSpan]:
    for chunk in chunks(cloud_ids):
        query = sa.select(meter).where(meter.c.cloud_id.in_(chunk)).order_by(meter.c.id)
        yield from map(span_of, connection.execute(query))


def _records(connection: sa.Connection, machines: Mapping[str, Machine]) -> dict[str, MachineRecord]:
    """Return what we have on record about machines: the instance, and the create call that made it."""
    cloud_ids = list(machines)
    by_tag = {tag: cloud_id for cloud_id, it in machines.items() if (tag := machine_tag(it)) is not None}
    bound = {row.cloud_id: row for row in _where(connection, instance, instance.c.cloud_id, cloud_ids)}
    made = {row.cloud_id: row for row in _where(connection, attempt, attempt.c.cloud_id, cloud_ids)}
    tagged = {by_tag[row.tag]: row for row in _where(connection, attempt, attempt.c.tag, list(by_tag))}
    # Mostly the call whose tag a machine carries is the one that has made it.
    rows = {row.tag: row for row in (*made.values(), *tagged.values())}
    calls = {tag: attempt_of(row) for tag, row in rows.items()}
    records = {
        cloud_id: record_of(
            machines[cloud_id],
            instance_of(bound[cloud_id]) if cloud_id in bound else None,
            calls[tagged[cloud_id].tag] if cloud_id in tagged else None,
            calls[made[cloud_id].tag] if cloud_id in made else None,
        )
        for cloud_id in {*bound, *made, *tagged}
    }
    wanted = {it.open_call.instance_id for it in records.values() if it.open_call is not None}
    waiting = {row.id: row for row in _where(connection, instance, instance.c.id, sorted(wanted))}
    for cloud_id, it in records.items():
        if it.open_call is not None and (row := waiting.get(it.open_call.instance_id)) is not None:
            records[cloud_id] = replace(it, instance=instance_of(row))
    return records


def _where(
    connection: sa.Connection, table: sa.Table, column: sa.Column[Any], values: Sequence[str]
) -> Iterable[sa.Row[Any]]:
    for chunk in chunks(values):
        yield from connection.execute(sa.select(table).where(column.in_(chunk)))
