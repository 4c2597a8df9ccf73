"""Writes a `Change`.

The instance, its events, attempt, deliveries and jobs, all in one transaction, within the quota of its owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.listen_notify import record_change
from gpuherd.adapters.sql.rental_tables import (
    attempt,
    event,
    instance,
    instance_label,
    operation,
)
from gpuherd.adapters.sql.service_tables import delivery
from gpuherd.adapters.sql.sql_types import dumps, insert_into
from gpuherd.adapters.stores import job_store
from gpuherd.adapters.stores.audit_store import append_audit_record, lock_audit_log
from gpuherd.adapters.stores.budget_store import check_budgets
from gpuherd.adapters.stores.instance_rows import MICROS, instance_of, instance_row
from gpuherd.adapters.stores.row_codec import (
    attempt_row,
    delivery_row,
    event_row,
    operation_doc,
)
from gpuherd.adapters.stores.usage_span_writes import claim_spans, note_unseen
from gpuherd.domain.errors import MachineHeld, StaleWrite
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import was_machine_proven_gone
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.instance.quota import Usage, check_quota, usage_of
from gpuherd.domain.instance.rent_attempt import ATTEMPTS_KEPT, Attempt, AttemptState
from gpuherd.domain.job import NewJob
from gpuherd.ports.instance_port import Change


def check_limits(connection: sa.Connection, change: Change) -> None:
    """Raise `QuotaExceeded` if this change would take its owner over the limit.

    Two changes at once cannot both take the last free place. SQLite has one writer. On PostgreSQL a change
    with limits appends an audit record, which holds the lock of the audit log until the commit.
    """
    if change.limits is None or not change.limits.on_rentals:
        return
    it = change.instance
    # The partial indexes answer these queries: their conditions, word for word, and only their columns.
    held = sa.select(_GPUS, _USD).where(instance.c.owner == it.owner, sa.text("gpus > 0"))
    stopped = sa.select(_USD).where(instance.c.owner == it.owner, sa.text("gpus = 0 AND micro_usd > 0"))
    own = sa.select(_GPUS, _USD).where(instance.c.id == it.id)
    (gpus, micro_usd), (own_gpus, own_usd) = (connection.execute(query).one() for query in (held, own))
    disks_usd = connection.execute(stopped).scalar_one()
    # guard: stopped disks count in what a key spends
    used = Usage(int(gpus - own_gpus), Decimal(int(micro_usd + disks_usd - own_usd)) / MICROS)
    check_quota(change.limits, used, usage_of(it))


_GPUS = sa.func.coalesce(sa.func.sum(instance.c.gpus), 0)
_USD = sa.func.coalesce(sa.func.sum(instance.c.micro_usd), 0)


# guard: version in a save
_THIS_VERSION = sa.update(instance).where(
    instance.c.id == sa.bindparam("its_id"),
    instance.c.version == sa.bindparam("its_version"),
)


# guard: lease token in a save
_UNDER_LEASE = _THIS_VERSION.where(instance.c.lease_token == sa.bindparam("its_token"))


_AND_RELEASE = _UNDER_LEASE.values(lease_token=None, lease_until=None)
_UPDATE_ATTEMPT = sa.update(attempt).where(
    attempt.c.instance_id == sa.bindparam("its_id"),
    attempt.c.n == sa.bindparam("its_n"),
)


_PRUNE_REJECTED = sa.delete(attempt).where(
    attempt.c.instance_id == sa.bindparam("its_id"),
    attempt.c.n <= sa.bindparam("up_to", type_=sa.Integer),
    attempt.c.state == AttemptState.REJECTED.value,
)


def add_instance(connection: sa.Connection, change: Change, now: datetime) -> None:
    """Remember a new instance."""
    new = change.instance
    lock_audit_log(connection, change.audit_record)
    check_limits(connection, change)
    # guard: budgets judge in the transaction that accepts
    check_budgets(connection, change, now)
    connection.execute(sa.insert(instance), {**instance_row(new), "version": new.version})
    if new.labels:
        rows = [{"instance_id": new.id, "key": key, "value": value} for key, value in new.labels.items()]
        connection.execute(sa.insert(instance_label), rows)
    _write_rest(connection, change, now)
    job_store.insert_jobs(connection, change.jobs, now)


def update_instance(connection: sa.Connection, change: Change, token: str | None, now: datetime) -> int:
    """Write a change over the version it was made from, and return the new version."""
    it = change.instance
    lock_audit_log(connection, change.audit_record)
    check_limits(connection, change)
    check_budgets(connection, change, now)
    # In the order of their ids, so that two that change the same ones cannot wait for each other.
    for other in change.also:
        if other.instance.id < it.id:
            update_instance(connection, other, None, now)
    if it.settled and change.finished_job and job_store.was_woken(connection, change.finished_job):
        raise StaleWrite(f"instance {it.id} cannot rest: there is news that this turn has not seen")
    version = it.version + 1
    values = {**instance_row(it), "version": version, "its_id": it.id, "its_version": it.version}
    if token is None:
        written = connection.execute(_THIS_VERSION, values).rowcount
    else:
        update = _AND_RELEASE if change.releases_lease else _UNDER_LEASE
        written = connection.execute(update, {**values, "its_token": token}).rowcount
    if written != 1:
        raise StaleWrite(f"instance {it.id} has changed since it was read, or its turn was lost")
    for other in change.also:
        if other.instance.id > it.id:
            update_instance(connection, other, None, now)
    if change.heir is not None:
        _add_heir(connection, change.heir, now)
    # Asked before the job is closed, after which nobody could wake it.
    jobs = _due_if_woken(connection, change)
    _write_rest(connection, change, now)
    job_store.insert_jobs(connection, jobs, now)
    return version


def _add_heir(connection: sa.Connection, change: Change, now: datetime) -> None:
    """Insert an heir. Raise `StaleWrite` if its link already has an heir: the first writer wins."""
    chain = change.instance.chain
    assert chain is not None, "an heir is in a lineage"
    taken = sa.select(instance.c.id).where(instance.c.lineage == chain.lineage, instance.c.link == chain.link)
    # guard: one heir for each link
    if connection.execute(taken).first() is not None:
        raise StaleWrite(f"link {chain.link} of lineage {chain.lineage} is taken")
    add_instance(connection, change, now)


def take_over_cloud_id(connection: sa.Connection, it: Instance) -> str | None:
    """Free a machine id that the cloud has used again. Return the id of the instance that had it before.

    Raise `MachineHeld` if the machine of that instance may still exist.
    """
    others = sa.select(instance).where(instance.c.cloud_id == it.cloud_id, instance.c.id != it.id)
    row = connection.execute(others).first()
    if row is None:
        return None
    # guard: a machine that may exist stays with its instance
    if not was_machine_proven_gone(holder := instance_of(row)):
        raise MachineHeld(f"instance {holder.id} has machine {it.cloud_id}, which is not proven to be gone")
    # guard: an id that the cloud uses again goes over to the new machine's instance
    let_go(connection, holder)
    return holder.id


def let_go(connection: sa.Connection, holder: Instance) -> None:
    """Take the machine id from an instance. The instance keeps it only as a former id."""
    story = replace(holder, cloud_id=None, former_cloud_id=holder.cloud_id)
    values = {**instance_row(story), "version": holder.version + 1}
    version = {"its_id": holder.id, "its_version": holder.version}
    if connection.execute(_THIS_VERSION, {**values, **version}).rowcount != 1:
        raise StaleWrite(f"instance {holder.id} has changed since it was read")
    record_change(connection, holder.id)


def _due_if_woken(connection: sa.Connection, change: Change) -> Sequence[NewJob]:
    """Return the new jobs; one that takes over from a job with unseen news must not wait."""
    waits = any(new.delay for new in change.jobs)
    if waits and change.finished_job and job_store.was_woken(connection, change.finished_job):
        return [replace(new, delay=timedelta(0)) for new in change.jobs]
    return change.jobs


def _write_rest(connection: sa.Connection, change: Change, now: datetime) -> None:
    record_change(connection, change.instance.id)
    if change.audit_record is not None:
        append_audit_record(connection, change.audit_record)
    if change.attempt is not None:
        _write_attempt(connection, change.attempt)
    if change.events:
        connection.execute(sa.insert(event), [event_row(it) for it in change.events])
    if change.deliveries:
        # guard: webhooks in the transaction of what they tell
        connection.execute(sa.insert(delivery), [delivery_row(it) for it in change.deliveries])
    for moved in change.operations:
        _write_operation(connection, change.instance.id, moved)
    if change.finished_job is not None:
        job_store.finish_job(connection, change.finished_job, now)
    if change.binds_machine:
        claim_spans(connection, change.instance, now)
    if change.ends_machine:
        note_unseen(connection, change.instance, change.reading, now)


def _write_attempt(connection: sa.Connection, it: Attempt) -> None:
    row = attempt_row(it)
    # In the order that is likelier to be right at once.
    steps = (
        (_add_attempt, _change_attempt) if it.state is AttemptState.SENT else (_change_attempt, _add_attempt)
    )
    if not any(step(connection, it, row) for step in steps):
        # The index that allows one open attempt said no: somebody else's call is under way.
        # guard: no call for an attempt that was not taken down
        raise StaleWrite(f"instance {it.instance_id} has an unresolved create call already")
    if it.state is AttemptState.SENT and it.n > ATTEMPTS_KEPT:
        connection.execute(_PRUNE_REJECTED, {"its_id": it.instance_id, "up_to": it.n - ATTEMPTS_KEPT})


def _add_attempt(connection: sa.Connection, it: Attempt, row: Mapping[str, Any]) -> bool:
    # When either of its indexes refuses the row, nothing is inserted and nothing comes back.
    insert = insert_into(connection, attempt).on_conflict_do_nothing().returning(attempt.c.n)
    return connection.execute(insert, row).first() is not None


def _change_attempt(connection: sa.Connection, it: Attempt, row: Mapping[str, Any]) -> bool:
    known = {**row, "its_id": it.instance_id, "its_n": it.n}
    return connection.execute(_UPDATE_ATTEMPT, known).rowcount == 1


def _write_operation(connection: sa.Connection, instance_id: str, it: Operation) -> None:
    doc = dumps(operation_doc(it))
    row = insert_into(connection, operation).values(
        id=it.id, instance_id=instance_id, requested_at=it.requested_at, doc=doc
    )
    connection.execute(row.on_conflict_do_update(index_elements=["id"], set_={"doc": doc}))
