"""A turn whose end could not be written down is over all the same, for whoever knows that it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuherd.adapters.sql.database import Database
from gpuherd.domain.errors import StaleWrite, StoreUnavailable
from gpuherd.ports.instance_port import Change, LeasedInstance
from tests.support.builders import an_instance, instance_id
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import Store, migrate_file

IMPATIENT_S = 0.01


@pytest.fixture
def path(tmp_path: Path) -> Path:
    migrate_file(tmp_path / "gpuherd.db")
    return tmp_path / "gpuherd.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Database(f"sqlite:///{path}", busy_timeout_s=IMPATIENT_S)) as database:
        yield Store(database, FakeClock())


async def lost_end(store: Store, path: Path) -> LeasedInstance:
    """Begin a turn, and end it while nothing can be written."""
    await store.instances.add(Change(an_instance()))
    leased = await store.instance_leases.acquire(instance_id(1), None)
    assert leased is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            await store.instance_leases.release(leased)
        somebody.execute("ROLLBACK")
    return leased


async def test_the_next_turn_of_the_same_process_need_not_wait(store: Store, path: Path) -> None:
    lost = await lost_end(store, path)
    leased = await store.instance_leases.acquire(instance_id(1), None)
    assert leased is not None
    assert leased.token != lost.token
    with pytest.raises(StaleWrite):
        await store.instance_leases.save(lost, Change(lost.instance))
    assert await store.instance_leases.acquire(instance_id(1), None) is None, (
        "only that one turn was known to be over"
    )


async def test_others_cannot_know_and_wait(store: Store, path: Path) -> None:
    await lost_end(store, path)
    with closing(Database(f"sqlite:///{path}")) as database:
        assert (
            await Store(database, FakeClock(), seed=2).instance_leases.acquire(instance_id(1), None) is None
        )
