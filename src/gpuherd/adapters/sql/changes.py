"""Writes a `Change`: the instance, its events, attempt, deliveries and jobs, all in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql import job_rows
from gpuherd.adapters.sql.audit_rows import append_deed, begin_deed
from gpuherd.adapters.sql.change_notice import note_change
from gpuherd.adapters.sql.doc_parts import dumps
from gpuherd.adapters.sql.mapping import attempt_row, delivery_row, event_row, instance_row, operation_doc
from gpuherd.adapters.sql.prepared import PreparedInsert
from gpuherd.adapters.sql.quota import check_limits
from gpuherd.adapters.sql.schema import attempt, delivery, event, instance, instance_label, operation
from gpuherd.adapters.sql.upsert import insert_for, insert_into
from gpuherd.domain.attempt import Attempt, AttemptState
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.operation import Operation
from gpuherd.ports.store import Change

_INSERT_INSTANCE = PreparedInsert(
    lambda _: sa.insert(instance).inline(),
    "id",
    "name",
    "status",
    "goal",
    "settled",
    "cloud_id",
    "product_name",
    "created_at",
    "ready_at",
    "owner",
    "gpus",
    "micro_usd",
    "version",
    "doc",
)
_INSERT_EVENT = PreparedInsert(
    # Nobody asks for its number, so the database need not tell it.
    lambda _: sa.insert(event).inline(),
    "instance_id",
    "sequence",
    "type",
    "at",
    "doc",
)
_INSERT_LABELS = sa.insert(instance_label)
# Made once: to put a statement together takes longer than to run it.
_UPDATE = sa.update(instance).where(
    instance.c.id == sa.bindparam("its_id"),
    instance.c.version == sa.bindparam("its_version"),
)
_UPDATE_IN_TURN = _UPDATE.where(
    instance.c.lease_token == sa.bindparam("its_token"),
)
_LAST_UPDATE_IN_TURN = _UPDATE_IN_TURN.values(lease_token=None, lease_until=None)
_UPDATE_ATTEMPT = sa.update(attempt).where(
    attempt.c.instance_id == sa.bindparam("its_id"),
    attempt.c.n == sa.bindparam("its_n"),
)
_INSERT_ATTEMPT = PreparedInsert(
    # Whichever of its indexes says no, nothing is inserted, and nothing comes back.
    lambda name: insert_for(name, attempt).on_conflict_do_nothing().returning(attempt.c.n),
    *(it.name for it in attempt.columns),
)
_INSERT_DELIVERY = PreparedInsert(
    lambda _: sa.insert(delivery).inline(),
    *(it.name for it in delivery.columns),
)


def add_instance(connection: sa.Connection, change: Change, now: datetime) -> None:
    """Remember a new instance."""
    new = change.instance
    begin_deed(connection, change.deed)
    check_limits(connection, change)
    _INSERT_INSTANCE.run_later(connection, {**instance_row(new), "version": new.version})
    if new.labels:
        rows = [{"instance_id": new.id, "key": key, "value": value} for key, value in new.labels.items()]
        connection.execute(_INSERT_LABELS, rows)
    _write_rest(connection, change, now)
    job_rows.insert_new_jobs(connection, change.jobs, now)


def update_instance(connection: sa.Connection, change: Change, token: str | None, now: datetime) -> int:
    """Write a change over the version it was made from, and return the new version."""
    it = change.instance
    begin_deed(connection, change.deed)
    check_limits(connection, change)
    if it.settled and change.finished_job and job_rows.was_woken(connection, change.finished_job):
        raise StaleWrite(f"instance {it.id} cannot rest: there is news that this turn has not seen")
    version = it.version + 1
    values = {**instance_row(it), "version": version, "its_id": it.id, "its_version": it.version}
    if token is None:
        written = connection.execute(_UPDATE, values)
    else:
        update = _LAST_UPDATE_IN_TURN if change.ends_turn else _UPDATE_IN_TURN
        written = connection.execute(update, {**values, "its_token": token})
    if written.rowcount != 1:
        raise StaleWrite(f"instance {it.id} has changed since it was read, or its turn was lost")
    _write_rest(connection, change, now)
    job_rows.insert_jobs(connection, change.jobs, now)
    return version


def _write_rest(connection: sa.Connection, change: Change, now: datetime) -> None:
    note_change(connection, change.instance.id)
    if change.deed is not None:
        append_deed(connection, change.deed)
    if change.attempt is not None:
        _write_attempt(connection, change.attempt)
    for it in change.events:
        _INSERT_EVENT.run_later(connection, event_row(it))
    for told in change.deliveries:
        _INSERT_DELIVERY.run_later(connection, delivery_row(told))
    for moved in change.operations:
        _write_operation(connection, change.instance.id, moved)
    if change.finished_job is not None:
        job_rows.finish_job(connection, change.finished_job, now)


def _write_attempt(connection: sa.Connection, it: Attempt) -> None:
    row = attempt_row(it)
    # In the order that is likelier to be right at once.
    steps = (
        (_add_attempt, _change_attempt) if it.state is AttemptState.SENT else (_change_attempt, _add_attempt)
    )
    if not any(step(connection, it, row) for step in steps):
        # The index that allows one open attempt said no: somebody else's call is under way.
        raise StaleWrite(f"instance {it.instance_id} has an unresolved create call already")


def _add_attempt(connection: sa.Connection, it: Attempt, row: Mapping[str, Any]) -> bool:
    return _INSERT_ATTEMPT.run(connection, row) is not None


def _change_attempt(connection: sa.Connection, it: Attempt, row: Mapping[str, Any]) -> bool:
    known = {**row, "its_id": it.instance_id, "its_n": it.n}
    return connection.execute(_UPDATE_ATTEMPT, known).rowcount == 1


def _write_operation(connection: sa.Connection, instance_id: str, it: Operation) -> None:
    doc = dumps(operation_doc(it))
    row = insert_into(connection, operation).values(
        id=it.id, instance_id=instance_id, requested_at=it.requested_at, doc=doc
    )
    connection.execute(row.on_conflict_do_update(index_elements=["id"], set_={"doc": doc}))
