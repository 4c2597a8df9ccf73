"""What the port of ended sessions promises, in memory, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta

import pytest

from gpuherd.adapters.sql import service_tables
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.stores.access_store import SqlRevokedSessions
from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.audit import AuditRecord
from gpuherd.ports.access_port import RevokedSessions
from tests.contracts.conftest import MEMORY
from tests.support.fake_clock import START
from tests.support.memory.revoked_sessions import MemoryRevokedSessions
from tests.support.sql.databases import Store, all_at_once

HOUR = timedelta(hours=1)
ADA = Caller("adaadaad", Scope.READ)


def leaving(n: int = 1) -> AuditRecord:
    return ADA.audit_record("session.end", "adaadaad", START, after=f"{n}")


@pytest.fixture
def both(request: pytest.FixtureRequest, database_url: str) -> tuple[RevokedSessions, RevokedSessions]:
    """The same memory as two replicas have it."""
    if database_url == MEMORY:
        one = MemoryRevokedSessions()
        return one, one
    here, there = request.getfixturevalue("store"), request.getfixturevalue("other_store")
    return here.ended_sessions, there.ended_sessions


@pytest.fixture
def on_sql(database_url: str) -> None:
    if database_url == MEMORY:
        pytest.skip("memory forgets nothing, and has no log")


async def audit_records(store: Store) -> list[str]:
    return [it.audit_record.after for it in (await store.audit.page(100, oldest_first=True)).entries]


async def test_what_one_replica_has_ended_is_over_in_the_other(
    both: tuple[RevokedSessions, RevokedSessions],
) -> None:
    here, there = both
    assert not await there.has("ses_1")
    await here.add("ses_1", START + HOUR, leaving())
    assert await here.has("ses_1")
    assert await there.has("ses_1")
    assert not await there.has("ses_2")


async def test_to_end_it_again_is_quiet(both: tuple[RevokedSessions, RevokedSessions]) -> None:
    here, there = both
    answers = await all_at_once(10, lambda n: both[n % 2].add("ses_1", START + HOUR, leaving(n)))
    assert answers == [None] * 10
    await here.add("ses_1", START + HOUR, leaving())
    assert await there.has("ses_1")


@pytest.mark.usefixtures("on_sql")
async def test_who_ended_it_is_in_the_log_once(store: Store, other_store: Store) -> None:
    for n, it in enumerate((store, other_store, store)):
        await it.ended_sessions.add("ses_1", START + HOUR, leaving(n))
    assert await audit_records(store) == ["0"]


@pytest.mark.usefixtures("on_sql")
async def test_it_is_remembered_by_whoever_opens_the_database_next(store: Store, database_url: str) -> None:
    await store.ended_sessions.add("ses_1", START + HOUR, leaving())
    store.database.close()
    with closing(Database(database_url)) as again:
        assert await SqlRevokedSessions(again).has("ses_1")


@pytest.mark.usefixtures("on_sql")
async def test_whoever_has_one_open_here_is_told_once_it_is_over(store: Store) -> None:
    told: list[Sequence[str]] = []
    ended = SqlRevokedSessions(store.database, told.append)
    await ended.add("ses_1", START + HOUR, leaving())
    assert told == [["ses_1"]]


@pytest.mark.usefixtures("on_sql")
async def test_one_that_would_be_over_anyway_is_forgotten(store: Store) -> None:
    for n in (1, 2, 3):
        await store.ended_sessions.add(f"ses_{n}", START + n * HOUR, leaving(n))
    assert await store.retention.prune_sessions(START + 2 * HOUR) == 1
    assert {row.id for row in await store.rows(service_tables.ended_session)} == {"ses_2", "ses_3"}
    assert await audit_records(store) == ["1", "2", "3"]
