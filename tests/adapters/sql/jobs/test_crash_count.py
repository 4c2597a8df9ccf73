"""A job that ends its process each time is given up (F55), and no other is."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.service_tables import job
from gpuherd.adapters.stores.job_store import CRASHES_MAX, count_crashes
from gpuherd.domain.job import JobStatus
from gpuherd.ports.instance_port import Change
from tests.support.builders import a_reconcile_job, an_instance
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import Store
from tests.support.sql.inline_database import InlineDatabase


async def a_store(tmp_path: Path) -> Store:
    store = Store(InlineDatabase(tmp_path / "gpuherd.db"), FakeClock())
    for n in (1, 2):
        await store.instances.add(Change(an_instance(n), jobs=(a_reconcile_job(n),)))
    return store


def boot_after_a_crash(store: Store, *under_way: int) -> tuple[str, ...]:
    """Let a process pick these jobs and end; return what the next one gives up."""

    def pick(connection: sa.Connection) -> None:
        ids = [a_reconcile_job(n).id for n in under_way]
        rows = sa.select(job.c.queue_id).where(job.c.id.in_(ids))
        connection.execute(sa.update(queue).values(status="queued"))
        connection.execute(sa.update(queue).where(queue.c.id.in_(rows)).values(status="picked"))

    store.database.write_now(pick)
    return store.database.write_now(lambda c: count_crashes(c, store.clock.now()))


@pytest.mark.proves("F55")
async def test_f55_the_job_in_which_every_process_ends_is_given_up(tmp_path: Path) -> None:
    store = await a_store(tmp_path)
    for _ in range(CRASHES_MAX - 1):
        assert boot_after_a_crash(store, 1) == ()
    assert boot_after_a_crash(store, 1, 2) == (a_reconcile_job(1).id,)
    poison = await store.jobs.get(a_reconcile_job(1).id)
    assert poison.status is JobStatus.FAILED
    assert "5 times in a row" in poison.error
    assert (await store.jobs.get(a_reconcile_job(2).id)).status is not JobStatus.FAILED
    assert (await store.jobs.unscheduled(10)).instances == (), "its instance is left alone for a while"


async def test_f55_a_process_that_ends_elsewhere_starts_the_count_anew(tmp_path: Path) -> None:
    store = await a_store(tmp_path)
    for _ in range(CRASHES_MAX - 1):
        boot_after_a_crash(store, 1)
    assert boot_after_a_crash(store, 2) == ()
    assert boot_after_a_crash(store, 1) == ()


async def test_f55_a_quiet_boot_counts_nothing(tmp_path: Path) -> None:
    store = await a_store(tmp_path)
    assert [boot_after_a_crash(store) for _ in range(CRASHES_MAX + 1)] == [()] * (CRASHES_MAX + 1)
