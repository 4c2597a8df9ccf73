"""The lock of the audit log and group commit: what waits for the lock holds nothing that others wait for."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.rental_tables import instance
from gpuherd.adapters.stores.audit_store import append_audit_record
from gpuherd.domain.audit import AuditRecord
from gpuherd.ports.instance_port import Change
from tests.support.builders import an_instance
from tests.support.fake_clock import START
from tests.support.memory.store import MemoryStore
from tests.support.sql.databases import Store

RECORD = AuditRecord(START, "key", "create", "inst_1", "", "", "")
# How long one waits for the other where they do not wait for each other.
OVERLAP_S = 1.0


async def test_commits_of_two_replicas_with_an_audit_entry_and_the_same_row_do_not_deadlock(
    store: Store, other_store: Store
) -> None:
    """[save of X, audit entry] here against [audit entry, save of X] there."""
    if isinstance(store, MemoryStore) or store.database.is_sqlite:
        pytest.skip("only PostgreSQL has two writers")
    await store.instances.add(Change(an_instance()))
    runs: Counter[str] = Counter()
    first_here, first_there = threading.Event(), threading.Event()

    def save_here(connection: sa.Connection) -> None:
        runs["save here"] += 1
        connection.execute(sa.update(instance).values(lease_until=None))
        first_here.set()
        first_there.wait(OVERLAP_S)

    def enter_there(connection: sa.Connection) -> None:
        runs["entry there"] += 1
        append_audit_record(connection, RECORD)
        first_there.set()
        first_here.wait(OVERLAP_S)

    def enter_here(connection: sa.Connection) -> None:
        runs["entry here"] += 1
        append_audit_record(connection, RECORD)

    def save_there(connection: sa.Connection) -> None:
        runs["save there"] += 1
        connection.execute(sa.update(instance).values(lease_until=None))

    await asyncio.gather(
        store.database.write(save_here),
        store.database.write(enter_here, audited=True),
        other_store.database.write(enter_there, audited=True),
        other_store.database.write(save_there),
    )
    assert set(runs.values()) == {1}, f"PostgreSQL has ended a deadlock: {runs}"
    assert len((await store.audit.page(10)).entries) == 2
