"""What the store promises the ends: who wins where an extension and an end meet, and looks at an index."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import instance
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.idleness import UseWatch
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lease import Idleness, Lease, Terms, term_of
from gpuherd.domain.money.budget import AtLimit, BudgetScope, ScopeKind
from gpuherd.ports.instance_port import Change
from tests.support.budgets import a_budget
from tests.support.builders import a_running_instance, instance_id
from tests.support.fake_clock import START as NOW
from tests.support.sql.databases import Store

MANY = 100_000
# In one statement, which must not take long.
AT_ONCE = 2_500
WARNING = timedelta(minutes=10)


def leased(n: int) -> Instance:
    terms = Terms(lease=Lease(seconds=60))
    return a_running_instance(n, terms=terms, lease_term=term_of(60, NOW, WARNING), settled=True)


def watched(n: int, look_after_s: float) -> Instance:
    look_at = NOW + timedelta(seconds=look_after_s)
    rule = Idleness(300)
    ready_at = NOW - timedelta(days=1)
    return a_running_instance(
        n,
        terms=Terms(idle=rule),
        status=Status.RUNNING,
        health_check=None,
        ready_at=ready_at,
        use_watch=UseWatch(look_at, NOW),
    )


def extended(it: Instance) -> Instance:
    return replace(it, lease_term=term_of(3600, NOW, WARNING))


def ended(it: Instance) -> Instance:
    assert it.lease_term is not None
    return replace(it, goal=Goal.STOPPED, lease_term=replace(it.lease_term, ended=True))


@pytest.mark.proves("E3")
async def test_an_extension_that_read_before_the_end_was_written_is_refused(store: Store) -> None:
    await store.instances.add(Change(leased(1)))
    read = await store.instances.get(instance_id(1))
    leased_instance = await store.instance_leases.acquire(instance_id(1), None)
    assert leased_instance is not None
    await store.instance_leases.save(leased_instance, Change(ended(leased_instance.instance)))
    with pytest.raises(StaleWrite):
        await store.instances.update(Change(extended(read)))
    assert (await store.instances.get(instance_id(1))).goal is Goal.STOPPED


@pytest.mark.proves("E3")
async def test_an_end_that_read_before_the_extension_was_written_is_refused(store: Store) -> None:
    await store.instances.add(Change(leased(1)))
    leased_instance = await store.instance_leases.acquire(instance_id(1), None)
    assert leased_instance is not None
    await store.instances.update(Change(extended(await store.instances.get(instance_id(1)))))
    with pytest.raises(StaleWrite):
        await store.instance_leases.save(leased_instance, Change(ended(leased_instance.instance)))
    kept = await store.instances.get(instance_id(1))
    assert kept.goal is Goal.RUNNING
    assert kept.lease_term == term_of(3600, NOW, WARNING)


async def test_of_an_idle_verdict_and_a_heartbeat_that_meet_one_is_written(store: Store) -> None:
    await store.instances.add(Change(watched(1, 0)))
    read = await store.instances.get(instance_id(1))
    await store.instances.update(Change(replace(read, used_at=NOW)))
    over = UseWatch(NOW, NOW, is_over=True)
    with pytest.raises(StaleWrite):
        await store.instances.update(Change(replace(read, use_watch=over)))


async def test_what_rests_is_found_when_its_time_is_over_and_not_before(store: Store) -> None:
    await store.instances.add(Change(leased(1)))
    await store.clock.advance(49)
    # Announced in the middle, as it is short.
    warned = await store.instances.get(instance_id(1))
    assert warned.lease_term is not None
    told = replace(warned, lease_term=replace(warned.lease_term, warned=True))
    await store.instances.update(Change(told))
    assert (await store.jobs.unscheduled(10)).instances == ()
    await store.clock.advance(11)
    assert [it.id for it in (await store.jobs.unscheduled(10)).instances] == [instance_id(1)]


async def test_what_rests_until_some_time_is_over_is_listed_in_pages(store: Store) -> None:
    for n in (1, 2, 3):
        await store.instances.add(Change(leased(n)))
    await store.instances.add(Change(replace(leased(4), settled=False)))
    await store.instances.add(Change(a_running_instance(5, settled=True)))
    first = await store.jobs.with_end("", 2)
    assert [it.id for it in first] == [instance_id(1), instance_id(2)]
    assert [it.id for it in await store.jobs.with_end(first[-1].id, 2)] == [instance_id(3)]


async def test_those_whose_look_is_due_come_longest_due_first(store: Store) -> None:
    for n, after_s in enumerate((30, -10, 0, -20, 60), 1):
        await store.instances.add(Change(watched(n, after_s)))
    await store.instances.add(Change(leased(6)))
    due = await store.instances.due_for_use_look(NOW, 10)
    assert [it.id for it in due] == [instance_id(n) for n in (4, 2, 3)]
    assert [it.id for it in await store.instances.due_for_use_look(NOW, 1)] == [instance_id(4)]
    stopped = replace(due[0], goal=Goal.STOPPED)
    await store.instances.update(Change(stopped))
    assert [it.id for it in await store.instances.due_for_use_look(NOW, 10)] == [
        instance_id(2),
        instance_id(3),
    ]


@pytest.mark.proves("E4")
async def test_among_many_leases_the_looks_of_sweep_idleness_and_budgets_are_looks_at_an_index(
    store: Store, database: Any
) -> None:
    if not isinstance(database, Database):
        pytest.skip("there is nothing to plan in memory")
    await store.instances.add(Change(leased(1)))
    await store.instances.add(Change(watched(2, 3600)))
    database.write_now(_fill)
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    engines = {database._write_engine, database._read_engine}
    for engine in engines:
        sa.event.listen(engine, "before_cursor_execute", note)
    await store.jobs.unscheduled(500)
    await store.instances.due_for_use_look(NOW, 50)
    for scope in (BudgetScope(ScopeKind.KEY, "ada"), BudgetScope(ScopeKind.LABEL, "team", "red")):
        assert not await store.budgets.to_end(a_budget(NOW, scope=scope, at_limit=AtLimit.DELETE), 50)
    for engine in engines:
        sa.event.remove(engine, "before_cursor_execute", note)
    plans = {
        column: database.write_now(partial(_plan, statement=it[0], parameters=it[1]))
        for column in ("due_at", "use_look_at")
        for it in asked
        if f"instance.{column} <=" in it[0]
    }
    assert "instance_due" in plans["due_at"], plans
    assert "instance_use_look" in plans["use_look_at"], plans
    looks = [
        database.write_now(partial(_plan, statement=statement, parameters=parameters))
        for statement, parameters in asked
        if "instance.goal IN" in statement
    ]
    assert len(looks) == 6
    for look in looks:
        assert not re.search(r"(SCAN|Seq Scan on) instance\b", look), look


def _fill(connection: sa.Connection) -> None:
    """Make copies of the first two, none of which is due for a month."""
    changed = {
        "id": "id || '-' || n",
        "cloud_id": "cloud_id || '-' || n",
        "due_at": "due_at + :later",
        "use_look_at": "use_look_at + :later",
    }
    columns = [it.name for it in instance.columns]
    values = ", ".join(changed.get(name, f"instance.{name}") for name in columns)
    numbers = (
        "WITH RECURSIVE s(n) AS (SELECT CAST(:low AS INTEGER) UNION ALL SELECT n + 1 FROM s "
        "WHERE n < :high) SELECT n FROM s"
    )
    copies = (
        f"INSERT INTO instance ({', '.join(columns)}) SELECT {values} FROM instance, ({numbers}) AS numbers "
        "WHERE instance.id IN (:first, :second)"
    )
    originals = {"first": instance_id(1), "second": instance_id(2)}
    later = int(timedelta(days=30) / timedelta(microseconds=1))
    for low in range(1, MANY // 2, AT_ONCE):
        span = {"low": low, "high": low + AT_ONCE - 1}
        connection.execute(sa.text(copies), {**originals, **span, "later": later})
    connection.execute(sa.text("ANALYZE instance"))


def _plan(connection: sa.Connection, statement: str, parameters: Any) -> str:
    word = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
    values = parameters if isinstance(parameters, dict) else tuple(parameters)
    rows = connection.exec_driver_sql(f"{word} {statement}", values)
    return "\n".join(str(row[-1]) for row in rows)
