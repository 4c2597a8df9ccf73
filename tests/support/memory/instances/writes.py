"""Writes a `Change` into memory, inside a transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gpuherd.domain.errors import MachineHeld, StaleWrite
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import was_machine_proven_gone
from gpuherd.domain.instance.quota import ZERO_USD, Usage, check_quota, usage_of
from gpuherd.domain.instance.rent_attempt import ATTEMPTS_KEPT, Attempt, AttemptState
from gpuherd.ports.instance_port import Change
from tests.support.memory.budget_sums import check_budgets
from tests.support.memory.costs import claim_spans, note_unseen
from tests.support.memory.jobs import job_rows
from tests.support.memory.tables import Clash, InstanceRow, Tables


def add_instance(tables: Tables, change: Change, now: datetime) -> None:
    """Remember a new instance."""
    new = change.instance
    _check_limits(tables, change)
    check_budgets(tables, change, now)
    tables.insert(tables.instances, new.id, InstanceRow(new))
    _bind(tables, new)
    _write_rest(tables, change, now)


def update_instance(tables: Tables, change: Change, token: str | None, now: datetime) -> int:
    """Write a change over the version it was made from, and return the new version."""
    it = change.instance
    if it.settled and change.finished_job and job_rows.was_woken(tables, change.finished_job):
        raise StaleWrite(f"instance {it.id} cannot rest: there is news that this turn has not seen")
    row = tables.instances.get(it.id)
    lost = token is not None and (row is None or row.lease_token != token)
    if row is None or row.instance.version != it.version or lost:
        raise StaleWrite(f"instance {it.id} has changed since it was read, or its turn was lost")
    _check_limits(tables, change)
    check_budgets(tables, change, now)
    version = it.version + 1
    _bind(tables, it, row.instance.cloud_id)
    lease = (None, None) if change.releases_lease else (row.lease_token, row.lease_until)
    # What it costs is the meter's to write.
    written = InstanceRow(replace(it, version=version, cost=row.instance.cost), *lease)
    tables.put(tables.instances, it.id, written)
    for other in change.also:
        update_instance(tables, other, None, now)
    if change.heir is not None:
        _add_heir(tables, change.heir, now)
    _write_rest(tables, change, now)
    return version


def _add_heir(tables: Tables, change: Change, now: datetime) -> None:
    """Remember an heir, unless its link has one."""
    chain = change.instance.chain
    assert chain is not None, "an heir is in a lineage"
    places = (row.instance.chain for row in tables.instances.values())
    if any(it is not None and (it.lineage, it.link) == (chain.lineage, chain.link) for it in places):
        raise StaleWrite(f"link {chain.link} of lineage {chain.lineage} is taken")
    add_instance(tables, change, now)


def take_over_cloud_id(tables: Tables, it: Instance) -> None:
    """Free the id of a machine that is gone for the instance that has it now."""
    holder_id = tables.bound.get(it.cloud_id or "")
    if holder_id is None or holder_id == it.id:
        return
    if not was_machine_proven_gone(holder := tables.instances[holder_id].instance):
        raise MachineHeld(f"instance {holder.id} has machine {it.cloud_id}, which is not proven to be gone")
    let_go(tables, holder)


def let_go(tables: Tables, holder: Instance) -> None:
    """Take the id of its machine from an instance, which keeps it only in its story."""
    story = replace(holder, cloud_id=None, former_cloud_id=holder.cloud_id, version=holder.version + 1)
    tables.put(tables.instances, holder.id, replace(tables.instances[holder.id], instance=story))
    tables.drop(tables.bound, holder.cloud_id or "")


def _bind(tables: Tables, it: Instance, before: str | None = None) -> None:
    """Keep the index that allows a machine one instance."""
    if it.cloud_id == before:
        return
    if before is not None:
        tables.drop(tables.bound, before)
    if it.cloud_id is not None:
        tables.insert(tables.bound, it.cloud_id, it.id)


def _check_limits(tables: Tables, change: Change) -> None:
    """Raise `QuotaExceeded` if this change would take its owner over the limit."""
    if change.limits is None or not change.limits.on_rentals:
        return
    it = change.instance
    others = (row.instance for row in tables.instances.values() if row.instance.id != it.id)
    held = [usage_of(other) for other in others if other.owner == it.owner]
    used = Usage(sum(each.gpus for each in held), sum((each.hourly_usd for each in held), ZERO_USD))
    check_quota(change.limits, used, usage_of(it))


def _write_rest(tables: Tables, change: Change, now: datetime) -> None:
    if change.audit_record is not None:
        tables.append_audit_record(change.audit_record)
    if change.attempt is not None:
        _write_attempt(tables, change.attempt)
    for event in change.events:
        tables.insert(tables.events, (event.instance_id, event.sequence), event)
    for delivery in change.deliveries:
        tables.insert(tables.deliveries, delivery.id, delivery)
    for operation in change.operations:
        tables.put(tables.operations, operation.id, (operation, change.instance.id))
    jobs = change.jobs
    if change.finished_job is not None:
        if job_rows.was_woken(tables, change.finished_job):
            jobs = tuple(replace(new, delay=timedelta(0)) for new in jobs)
        job_rows.finish_job(tables, change.finished_job, now)
    if change.binds_machine:
        claim_spans(tables, change.instance)
    if change.ends_machine:
        note_unseen(tables, change.instance, change.reading, now)
    job_rows.insert_jobs(tables, jobs, now)


def _write_attempt(tables: Tables, it: Attempt) -> None:
    key = (it.instance_id, it.n)
    before = tables.attempts.get(key)
    others = (known for known in tables.attempts.values() if known.instance_id == it.instance_id)
    doubled = it.is_open and any(known.is_open and known.n != it.n for known in others)
    taken = tables.tags.get(it.tag, key) != key
    if before is None and (doubled or taken):
        raise StaleWrite(f"instance {it.instance_id} has an unresolved create call already")
    if doubled or taken:
        raise Clash("one open attempt an instance, one attempt a tag")
    if before is not None and before.tag != it.tag:
        tables.drop(tables.tags, before.tag)
    tables.put(tables.tags, it.tag, key)
    tables.put(tables.attempts, key, it)
    if it.state is AttemptState.SENT:
        _prune_rejected(tables, it.instance_id, it.n - ATTEMPTS_KEPT)


def _prune_rejected(tables: Tables, instance_id: str, up_to: int) -> None:
    """Forget refused calls up to this number."""
    old = [
        it
        for it in tables.attempts.values()
        if it.instance_id == instance_id and it.n <= up_to and it.state is AttemptState.REJECTED
    ]
    for it in old:
        tables.drop(tables.tags, it.tag)
        tables.drop(tables.attempts, (it.instance_id, it.n))
