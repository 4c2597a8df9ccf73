"""A damaged file is refused, unless nothing is lost by it: no start goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpuherd.adapters.sql import rental_tables
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.sql.sql_types import DatabaseUnusable
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.instance_port import Change
from tests.support.builders import (
    a_delivery,
    a_list,
    a_reconcile_job,
    a_running_instance,
    a_sighting,
    a_tagged_machine,
    an_attempt,
    an_event,
)
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import Store

SEEDS = range(20)
SECTOR = 512
# What a start must never get wrong: which machines we pay for, and which create calls are unresolved.
IDENTITIES = {
    rental_tables.instance: ("id", "name", "status", "cloud_id"),
    rental_tables.attempt: ("instance_id", "n", "tag", "cloud_id"),
}
# History: a hole in it is met when somebody looks there, and then it is no secret.
HISTORY = {"event", "delivery", "job", "sighting", "list_record"}

Everything = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Everything]:
    """The bytes of a file in use, and all that is in it."""
    path = tmp_path_factory.mktemp("whole") / "gpuherd.db"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    everything = asyncio.run(_fill(Store(database, FakeClock())))
    database.close()
    return path.read_bytes(), everything


async def _fill(store: Store) -> Everything:
    for n in range(100):
        change = Change(
            a_running_instance(n, labels={"team": "vision"}),
            events=tuple(an_event(n, sequence, reason="as it was told") for sequence in range(5)),
            attempt=an_attempt(n),
            deliveries=(a_delivery(n),),
            jobs=(a_reconcile_job(n),),
        )
        await store.instances.add(change)
    seen = [a_sighting(a_tagged_machine(n)) for n in range(100)]
    await store.observations.record(a_list(), seen, [])
    return await store.everything()


def start_on(path: Path) -> Database | None:
    """Do as a start does; None if it is refused."""
    database = Database(f"sqlite:///{path}")
    try:
        migrate(database)
    except DatabaseUnusable:
        database.close()
        return None
    return database


async def what_is_there(store: Store, table: Any) -> list[tuple[Any, ...]] | None:
    """Return a table's rows, or None where reading fails aloud."""
    try:
        return sorted(map(tuple, await store.rows(table)), key=repr)
    except StoreUnavailable:
        return None


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_spoilt_sector_is_refused_or_harmless(
    whole: tuple[bytes, Everything], tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    content, everything = bytearray(whole[0]), whole[1]
    begin = rng.randrange(len(content) // SECTOR) * SECTOR
    content[begin : begin + SECTOR] = rng.randbytes(SECTOR)
    path = tmp_path / "gpuherd.db"
    path.write_bytes(content)
    database = start_on(path)
    if database is None:
        assert path.read_bytes() == content, "refused, and left for a person to look at"
        return
    with closing(database):
        store = Store(database, FakeClock())
        for table in rental_tables.metadata.sorted_tables:
            found = await what_is_there(store, table)
            refused_aloud = found is None and table.name in HISTORY
            assert refused_aloud or found == everything[table.name], table.name


@pytest.mark.proves("F32")
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_flipped_byte_never_changes_what_we_own(
    whole: tuple[bytes, Everything], tmp_path: Path, seed: int
) -> None:
    """SQLite keeps no checksums, so a letter in a text may change; but never an id, a tag or a status."""
    rng = random.Random(seed)
    content, everything = bytearray(whole[0]), whole[1]
    content[rng.randrange(len(content) // 4, 3 * len(content) // 4)] ^= rng.randrange(1, 256)
    path = tmp_path / "gpuherd.db"
    path.write_bytes(content)
    database = start_on(path)
    if database is None:
        return
    with closing(database):
        store = Store(database, FakeClock())
        for table, columns in IDENTITIES.items():
            at = [table.c.keys().index(name) for name in columns]
            found = await what_is_there(store, table)
            assert found is not None
            expected = everything[table.name]
            assert sorted([row[i] for i in at] for row in found) == sorted(
                [row[i] for i in at] for row in expected
            )


async def test_a_file_that_was_cut_short_is_refused(whole: tuple[bytes, Everything], tmp_path: Path) -> None:
    path = tmp_path / "gpuherd.db"
    path.write_bytes(whole[0][: len(whole[0]) // 2])
    assert start_on(path) is None


async def test_the_whole_file_is_not_refused(whole: tuple[bytes, Everything], tmp_path: Path) -> None:
    path = tmp_path / "gpuherd.db"
    path.write_bytes(whole[0])
    database = start_on(path)
    assert database is not None
    with closing(database):
        assert await Store(database, FakeClock()).everything() == whole[1]
