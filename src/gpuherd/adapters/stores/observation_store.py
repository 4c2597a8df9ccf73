"""What our lists of the cloud showed, in SQL, to rows and back.

Only changes are written: a quiet list costs one row.
"""

from __future__ import annotations

import json
from collections.abc import (
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Row

from gpuherd.adapters.sql.database import Database, chunks
from gpuherd.adapters.sql.rental_tables import (
    attempt,
    instance,
    is_unsettled,
    list_record,
    sighting,
)
from gpuherd.adapters.sql.sql_types import (
    MICROSECOND,
    Doc,
    at,
    dumps,
    moment,
    ports_doc,
    ports_of,
)
from gpuherd.adapters.stores import job_store
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.leader_fence import FencedDatabase
from gpuherd.adapters.stores.meter_writes import keep_meters, read_meter_state, read_unmetered
from gpuherd.domain.blast_limit import Bound
from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import ConnectionDetails, Machine, Phase
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine, Witness
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    TERMINAL_STATUSES,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.rent_attempt import OPEN_STATES, machine_tag, owner_tag
from gpuherd.domain.money.meter import Metering, MeterState


def machine_doc(it: Machine) -> str:
    """Return a machine as text; equal machines give equal text."""
    doc = {
        **vars(it),
        "phase": it.phase.value,
        "spot_reclaim_at": at(it.spot_reclaim_at),
        "created_at": at(it.created_at),
        "ports": ports_doc(it.ports),
        "connection": vars(it.connection),
    }
    # Of use only in the list that shows it; and replicas of an older version read this, too.
    del doc["hourly_usd"]
    return dumps(doc)


def machine_of(text: str) -> Machine:
    doc = json.loads(text)
    doc["phase"] = Phase(doc["phase"])
    doc["spot_reclaim_at"] = moment(doc["spot_reclaim_at"])
    doc["created_at"] = moment(doc["created_at"])
    doc["ports"] = ports_of(doc["ports"])
    doc["connection"] = ConnectionDetails(**doc["connection"])
    return Machine(**doc)


def sighting_row(it: ObservedMachine, tag: str | None) -> Doc:
    return {
        "cloud_id": it.machine.cloud_id,
        "tag": tag,
        "first_seen_at": it.first_seen_at,
        "changed_at": it.changed_at,
        "missing_since": it.missing_since,
        "missing_lists": it.missing_lists,
        "doc": machine_doc(it.machine),
    }


def sighting_of(row: Row[Any]) -> ObservedMachine:
    return ObservedMachine(
        machine=machine_of(row.doc),
        first_seen_at=row.first_seen_at,
        changed_at=row.changed_at,
        missing_since=row.missing_since,
        missing_lists=row.missing_lists,
    )


def list_record_of(row: Row[Any]) -> ListRecord:
    worth = Witness(row.witness)
    reading = None
    if row.read_at is not None:
        reading = ClockReading(row.read_at, row.boottime_us * MICROSECOND, row.boot_id)
    return ListRecord(row.started_at, row.finished_at, row.complete, worth, row.machines, row.id, reading)


def list_record_row(it: ListRecord) -> Doc:
    row = {**vars(it), "witness": it.witness.value}
    # The database numbers them.
    del row["id"]
    reading = row.pop("reading")
    if reading is not None:
        uptime_us = reading.uptime // MICROSECOND
        row |= {"read_at": reading.at, "boottime_us": uptime_us, "boot_id": reading.boot_id}
    return row


# Evidence about creates is needed for as long as a create may stay unresolved; a day is far beyond that.
LIST_RETENTION = timedelta(days=1)


IN_USE = [status.value for status in (Status.RUNNING, Status.HEALTH_CHECKING, Status.READY, Status.EXITED)]


_IN_DOUBT = sa.exists().where(
    attempt.c.instance_id == instance.c.id, attempt.c.state.in_([it.value for it in OPEN_STATES])
)


_ANY_UNSETTLED = (
    sa.select(instance.c.id).where(is_unsettled, sa.or_(instance.c.cloud_id.is_not(None), _IN_DOUBT)).limit(1)
)


_LAST_LIST = sa.select(list_record).order_by(list_record.c.id.desc()).limit(1)


class SqlObservations:
    """The port `Observations`."""

    def __init__(
        self,
        database: Database | FencedDatabase,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
    ):
        self._database = database
        self._announce = announce

    async def all_known(self) -> Mapping[str, ObservedMachine]:
        def work(connection: sa.Connection) -> Mapping[str, ObservedMachine]:
            return {row.cloud_id: sighting_of(row) for row in connection.execute(sa.select(sighting))}

        return await self._database.read(work)

    async def witnesses(self, older_than: datetime, limit: int) -> Collection[str]:
        query = (
            sa.select(instance.c.cloud_id)
            .join(sighting, sighting.c.cloud_id == instance.c.cloud_id)
            .where(
                instance.c.status.in_(IN_USE),
                sighting.c.first_seen_at <= older_than,
                sighting.c.missing_since.is_(None),
            )
            .limit(limit)
        )
        return await self._database.read(lambda c: c.execute(query).scalars().all())

    async def record(
        self,
        record: ListRecord,
        changed: Sequence[ObservedMachine],
        forgotten: Sequence[str],
        metering: Metering | None = None,
    ) -> tuple[Instance, ...]:
        def work(connection: sa.Connection) -> tuple[tuple[Instance, ...], list[str]]:
            concerned = _record(connection, record, changed, forgotten)
            # guard: a list and what it costs are written together
            charged = [] if metering is None else keep_meters(connection, metering, changed)
            return concerned, charged

        concerned, charged = await self._database.write(work)
        self._announce([*dict.fromkeys((*(it.id for it in concerned), *charged))])
        return concerned

    async def meter_state(self) -> MeterState:
        return await self._database.read(read_meter_state)

    async def unmetered(self) -> Collection[str]:
        return await self._database.read(read_unmetered)

    async def any_unsettled(self) -> bool:
        return await self._database.read(lambda c: c.execute(_ANY_UNSETTLED).first() is not None)

    async def last_list(self) -> ListRecord | None:
        return await self._latest()

    async def last_believable_list(self) -> ListRecord | None:
        return await self._latest(list_record.c.complete, list_record.c.witness != Witness.MISSING.value)

    async def last_vouched_list(self) -> ListRecord | None:
        return await self._latest(list_record.c.complete, list_record.c.witness == Witness.SEEN.value)

    async def knows_any(self, machines: Sequence[Machine]) -> bool:
        ids = [it.cloud_id for it in machines]
        tags = [tag for it in machines if (tag := machine_tag(it)) is not None]

        def work(connection: sa.Connection) -> bool:
            return any(
                connection.execute(sa.select(column).where(column.in_(chunk)).limit(1)).first() is not None
                for column, words in (
                    (sighting.c.cloud_id, ids),
                    (instance.c.cloud_id, ids),
                    (attempt.c.tag, tags),
                )
                for chunk in chunks(words)
            )

        return await self._database.read(work)

    async def bound_to(self, cloud_ids: Sequence[str]) -> Bound:
        ended = [it.value for it in TERMINAL_STATUSES]
        counted = sa.select(sa.func.count()).where(
            instance.c.cloud_id.is_not(None), instance.c.status.not_in(ended)
        )
        # What shall be deleted is meant to be gone.
        kept = counted.where(instance.c.goal != Goal.DELETED.value)

        def work(connection: sa.Connection) -> Bound:
            lost = sum(
                connection.execute(kept.where(instance.c.cloud_id.in_(chunk))).scalar_one()
                for chunk in chunks(cloud_ids)
            )
            return Bound(lost, connection.execute(counted).scalar_one())

        return await self._database.read(work)

    async def _latest(self, *where: sa.ColumnElement[bool]) -> ListRecord | None:
        def work(connection: sa.Connection) -> ListRecord | None:
            row = connection.execute(_LAST_LIST.where(*where)).first()
            return None if row is None else list_record_of(row)

        return await self._database.read(work)

    async def lists_since(self, moment: datetime) -> Sequence[ListRecord]:
        return await self._database.read(partial(read_lists_since, since=moment))


def read_lists_since(connection: sa.Connection, since: datetime) -> tuple[ListRecord, ...]:
    """Return the lists that were begun after a moment, oldest first."""
    query = sa.select(list_record).where(list_record.c.started_at > since).order_by(list_record.c.started_at)
    return tuple(map(list_record_of, connection.execute(query)))


def _record(
    connection: sa.Connection,
    record: ListRecord,
    changed: Sequence[ObservedMachine],
    forgotten: Sequence[str],
) -> tuple[Instance, ...]:
    connection.execute(sa.insert(list_record), list_record_row(record))
    old = list_record.c.started_at < record.started_at - LIST_RETENTION
    connection.execute(sa.delete(list_record).where(old))
    cloud_ids = [it.machine.cloud_id for it in changed]
    for ids in chunks([*forgotten, *cloud_ids]):
        connection.execute(sa.delete(sighting).where(sighting.c.cloud_id.in_(ids)))
    tags: list[str] = []
    # Part by part: of all machines of a first list they would fill more memory than anything after it.
    for part in chunks(changed):
        rows = [_row(it) for it in part]
        tags += [row["tag"] for row in rows if row["tag"]]
        connection.execute(sa.insert(sighting), rows)
    return _unsettle(connection, cloud_ids, tags, record.started_at)


def _unsettle(
    connection: sa.Connection, cloud_ids: list[str], tags: list[str], now: datetime
) -> tuple[Instance, ...]:
    """Mark every instance whose machine looks different now, so that a pass must look at it."""
    concerned: set[str] = set()
    for chunk in chunks(cloud_ids):
        bound = sa.select(instance.c.id).where(instance.c.cloud_id.in_(chunk))
        concerned.update(connection.execute(bound).scalars())
    for chunk in chunks(tags):
        tagged = sa.select(attempt.c.instance_id).where(attempt.c.tag.in_(chunk))
        concerned.update(connection.execute(tagged).scalars())
    found: list[Instance] = []
    for chunk in chunks(sorted(concerned)):
        these = instance.c.id.in_(chunk)
        # A pass that looked before this list may be about to put its instance to rest: it must not.
        job_store.mark_woken(connection, chunk, now)
        connection.execute(
            sa.update(instance)
            .where(these, instance.c.settled)
            .values(settled=False, version=instance.c.version + 1)
        )
        found += map(instance_of, connection.execute(sa.select(instance).where(these)))
    return tuple(found)


def _row(it: ObservedMachine) -> dict[str, Any]:
    owner = owner_tag(it.machine)
    named = None if owner is None else ID_PREFIX + owner.instance_key
    return {**sighting_row(it, machine_tag(it.machine)), "tagged_instance_id": named}
