"""The audit log is pruned by age, and stays verifiable, on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.service_tables import audit, audit_anchor
from gpuherd.adapters.stores import audit_store
from gpuherd.domain.audit import (
    NO_HASH,
    PRUNE_ACTION,
    AuditRecord,
    first_broken_entry,
)
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.access_port import AuditPage, AuditPruning
from tests.support.fake_clock import START
from tests.support.sql.databases import Store

DAY = timedelta(days=1)
NOW = START + 400 * DAY


@pytest.fixture(autouse=True)
def on_sql(database_url: str) -> None:
    if database_url == "memory:":
        pytest.skip("the audit log is kept by SQL alone")


async def filled(store: Store, days: int = 10) -> None:
    for day in range(days):
        await store.audit.append(AuditRecord(START + day * DAY, "ada", "cloud.sync", f"day {day}"))


async def whole(store: Store) -> AuditPage:
    return await store.audit.page(1000, oldest_first=True)


async def broken_at(store: Store) -> int | None:
    """Verify the log as a person with the API can."""
    page = await whole(store)
    begin = page.anchor
    return first_broken_entry(page.entries, begin.n if begin else 0, begin.hash if begin else NO_HASH)


async def without_triggers(store: Store, statement: sa.Delete | sa.Update) -> None:
    """Do what only somebody with the rights of the database's owner can."""

    def work(connection: sa.Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SET LOCAL session_replication_role = replica"))
        else:
            for what in ("audit_no_update", "audit_no_delete", "audit_anchor_no_return"):
                connection.execute(sa.text(f"DROP TRIGGER {what}"))
        connection.execute(statement)

    await store.database.write(work)


async def test_old_entries_go_the_log_says_so_and_the_chain_holds(store: Store) -> None:
    await filled(store)
    sixth = (await whole(store)).entries[5]
    assert await store.retention.prune_audit(START + 6 * DAY, NOW) == AuditPruning(6)
    page = await whole(store)
    assert [it.n for it in page.entries] == [7, 8, 9, 10, 11]
    assert page.anchor is not None
    assert (page.anchor.n, page.anchor.hash) == (6, sixth.hash)
    told = page.entries[-1]
    assert page.anchor.is_told_by(told)
    assert (told.audit_record.actor, told.audit_record.action) == ("retention", PRUNE_ACTION)
    assert await broken_at(store) is None


async def test_the_next_pruning_goes_on_from_the_anchor(store: Store) -> None:
    await filled(store)
    await store.retention.prune_audit(START + 4 * DAY, NOW)
    assert await store.retention.prune_audit(START + 8 * DAY, NOW) == AuditPruning(4)
    assert [it.n for it in (await whole(store)).entries] == [9, 10, 11, 12]
    assert await broken_at(store) is None


async def test_the_newest_entry_stays_for_the_next_to_be_chained_to(store: Store) -> None:
    await filled(store, 3)
    assert await store.retention.prune_audit(START + 100 * DAY, NOW) == AuditPruning(3)
    await store.audit.append(AuditRecord(NOW, "ada", "cloud.sync", "later"))
    assert [it.n for it in (await whole(store)).entries] == [4, 5, 6]
    assert await broken_at(store) is None


async def test_many_are_pruned_in_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_store, "PRUNED_AT_ONCE", 3)
    await filled(store)
    assert await store.retention.prune_audit(START + 8 * DAY, NOW) == AuditPruning(8)
    assert await broken_at(store) is None


async def test_it_is_pruned_once_a_day_since_each_time_is_an_entry(store: Store) -> None:
    await filled(store)
    assert await store.retention.prune_audit(START + DAY, NOW) == AuditPruning(0)
    assert (await whole(store)).total == 10


@pytest.mark.parametrize("n", [1, 3, 6])
async def test_a_chain_that_is_broken_before_the_cut_is_not_pruned(store: Store, n: int) -> None:
    await filled(store)
    await without_triggers(store, sa.update(audit).where(audit.c.n == n).values(actor="nobody"))
    assert await store.retention.prune_audit(START + 6 * DAY, NOW) == AuditPruning(0, n)
    assert (await whole(store)).total == 10
    assert await broken_at(store) == n


@pytest.mark.parametrize("n", [7, 9, 11])
async def test_a_change_after_the_anchor_is_noticed(store: Store, n: int) -> None:
    await filled(store)
    await store.retention.prune_audit(START + 6 * DAY, NOW)
    await without_triggers(store, sa.update(audit).where(audit.c.n == n).values(actor="nobody"))
    assert await broken_at(store) == n


async def test_entries_that_somebody_removed_behind_the_anchor_are_noticed(store: Store) -> None:
    await filled(store)
    await store.retention.prune_audit(START + 6 * DAY, NOW)
    await without_triggers(store, sa.delete(audit).where(audit.c.n <= 8))
    assert await broken_at(store) == 7


async def test_an_anchor_that_somebody_moved_was_not_told_to_the_log(store: Store) -> None:
    await filled(store)
    await store.retention.prune_audit(START + 4 * DAY, NOW)
    seventh = (await whole(store)).entries[2]
    await store.run(sa.update(audit_anchor).values(n=seventh.n, hash=seventh.hash))
    await store.run(sa.delete(audit).where(audit.c.n <= seventh.n))
    page = await whole(store)
    assert page.anchor is not None
    assert not any(page.anchor.is_told_by(it) for it in page.entries)


async def test_an_anchor_with_another_hash_breaks_the_chain(store: Store) -> None:
    await filled(store)
    await store.retention.prune_audit(START + 6 * DAY, NOW)
    await without_triggers(store, sa.update(audit_anchor).values(hash="f" * 64))
    assert await broken_at(store) == 7


@pytest.mark.parametrize(
    "statement",
    [
        sa.delete(audit).where(audit.c.n == 7),
        sa.delete(audit),
        sa.update(audit).values(actor="nobody"),
        sa.delete(audit_anchor),
        sa.update(audit_anchor).values(n=5),
        sa.update(audit_anchor).values(hash="f" * 64),
    ],
    ids=str,
)
async def test_the_database_refuses_to_change_what_is_kept(
    store: Store, statement: sa.Delete | sa.Update
) -> None:
    await filled(store)
    await store.retention.prune_audit(START + 6 * DAY, NOW)
    with pytest.raises((sa.exc.DatabaseError, StoreUnavailable)):
        await store.run(statement)
    assert (await whole(store)).total == 5
    assert await broken_at(store) is None
