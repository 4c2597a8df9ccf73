"""What the ports `LeaderLeases` and `Replicas` promise, and that the fencing token stops an old leader."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql import rental_tables
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.stores.instance_locks import SHORT_LEASE_TERM, SqlInstanceLeases
from gpuherd.adapters.stores.leader_fence import FencedDatabase
from gpuherd.adapters.stores.observation_store import SqlObservations
from gpuherd.adapters.stores.replica_store import SqlLeaderLeases, SqlReplicas
from gpuherd.domain.errors import LeadershipLost, StaleWrite
from gpuherd.ports.clock_port import Ids
from gpuherd.ports.instance_port import Change
from gpuherd.ports.replica_port import Replica
from tests.support.builders import a_list, a_machine, a_sighting, an_instance, instance_id
from tests.support.fake_clock import START, FakeClock
from tests.support.sql.databases import Store, all_at_once, sqlalchemy_url

TERM = timedelta(seconds=10)
SECOND = timedelta(seconds=1)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return sqlalchemy_url(request.getfixturevalue("fresh_postgres"))
    path = tmp_path / "gpuherd.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), path)
    return f"sqlite:///{path}"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with closing(Database(database_url)) as database:
        yield database


@pytest.fixture
def duties(database: Database, store_clock: FakeClock) -> SqlLeaderLeases:
    return SqlLeaderLeases(database, store_clock)


def turns_of(database: Database, clock: FakeClock, seed: int) -> SqlInstanceLeases:
    return SqlInstanceLeases(database, clock, Ids(clock, random.Random(seed)), lease=SHORT_LEASE_TERM)


async def test_a_free_duty_is_taken_and_kept_under_one_fence(
    duties: SqlLeaderLeases, store_clock: FakeClock
) -> None:
    fencing_token = await duties.acquire_or_renew("watch", "a", TERM)
    await store_clock.advance(9)
    assert await duties.acquire_or_renew("watch", "a", TERM) == fencing_token
    await store_clock.advance(9)
    assert await duties.acquire_or_renew("watch", "b", TERM) is None


async def test_a_duty_whose_term_has_ended_goes_to_the_next_with_a_higher_fence(
    duties: SqlLeaderLeases, store_clock: FakeClock
) -> None:
    first = await duties.acquire_or_renew("watch", "a", TERM)
    await store_clock.advance(10)
    second = await duties.acquire_or_renew("watch", "b", TERM)
    assert first is not None
    assert second == first + 1
    assert await duties.acquire_or_renew("watch", "a", TERM) is None


async def test_only_a_term_without_a_gap_goes_on_under_the_same_fence(
    duties: SqlLeaderLeases, store_clock: FakeClock
) -> None:
    fencing_token = await duties.acquire_or_renew("watch", "a", TERM)
    await store_clock.advance(TERM.total_seconds() - 0.001)
    assert await duties.acquire_or_renew("watch", "a", TERM) == fencing_token
    await store_clock.advance(TERM.total_seconds())
    assert await duties.acquire_or_renew("watch", "a", TERM) == (fencing_token or 0) + 1


async def test_a_duty_that_is_laid_down_is_free_at_once(duties: SqlLeaderLeases) -> None:
    first = await duties.acquire_or_renew("watch", "a", TERM)
    await duties.release("watch", "b")
    assert await duties.acquire_or_renew("watch", "b", TERM) is None
    await duties.release("watch", "a")
    assert await duties.acquire_or_renew("watch", "b", TERM) == (first or 0) + 1


async def test_a_seized_duty_is_lost_to_the_one_who_held_it(duties: SqlLeaderLeases) -> None:
    first = await duties.acquire_or_renew("watch", "a", TERM)
    assert await duties.force_acquire("watch", "b", TERM) == (first or 0) + 1
    assert await duties.acquire_or_renew("watch", "a", TERM) is None


async def test_duties_are_held_apart(duties: SqlLeaderLeases) -> None:
    await duties.acquire_or_renew("watch", "a", TERM)
    assert await duties.acquire_or_renew("other", "b", TERM) is not None


@pytest.mark.proves("F28")
async def test_of_many_who_reach_for_it_one_gets_it(database_url: str, store_clock: FakeClock) -> None:
    replicas = [Database(database_url) for _ in range(4)]
    try:
        got = await all_at_once(
            4, lambda n: SqlLeaderLeases(replicas[n], store_clock).acquire_or_renew("watch", f"r{n}", TERM)
        )
    finally:
        for it in replicas:
            it.close()
    assert sorted(fencing_token is None for fencing_token in got) == [False, True, True, True]


async def test_a_list_written_out_of_term_is_refused_and_leaves_no_trace(
    database: Database, duties: SqlLeaderLeases
) -> None:
    fencing_token = await duties.acquire_or_renew("watch", "a", TERM)
    late = SqlObservations(FencedDatabase(database, "watch", lambda: fencing_token or 0))
    await late.record(a_list(started_at=START), (), ())
    await duties.force_acquire("watch", "b", TERM)
    with pytest.raises(LeadershipLost):
        await late.record(a_list(started_at=START + SECOND), [a_sighting(a_machine())], ())
    assert await late.all_known() == {}
    last = await late.last_list()
    assert last is not None
    assert last.started_at == START


async def test_what_was_concluded_before_a_loss_is_not_written_after_it(
    database: Database, duties: SqlLeaderLeases
) -> None:
    """The transaction itself may be the first to meet the server that has lost something."""
    fencing_token = await duties.acquire_or_renew("watch", "a", TERM)
    fenced = FencedDatabase(database, "watch", lambda: fencing_token or 0)
    database.history.note_commit(2**62)

    @sa.event.listens_for(database._write_engine, "begin")
    def begin_on_a_promoted_standby(connection: object) -> None:
        database.history.check_transaction(None, 1)

    with pytest.raises(LeadershipLost):
        await SqlObservations(fenced).record(a_list(), [a_sighting(a_machine())], ())
    assert await SqlObservations(fenced).all_known() == {}
    await SqlObservations(fenced).record(a_list(), [a_sighting(a_machine())], ())


async def test_a_short_lease_lasts_for_as_long_as_it_is_renewed(
    database: Database, store_clock: FakeClock
) -> None:
    store = Store(database, store_clock)
    await store.instances.add(Change(an_instance()))
    ours, theirs = turns_of(database, store_clock, 1), turns_of(database, store_clock, 2)
    leased = await ours.acquire(instance_id(1), None)
    assert leased is not None
    for _ in range(10):
        await store_clock.advance(3)
        assert await ours.renew() == 1
        assert await theirs.acquire(instance_id(1), None) is None
    await ours.save(leased, Change(replace(leased.instance, reason="still here")))


@pytest.mark.proves("F29")
async def test_a_turn_that_was_not_renewed_is_taken_over_and_its_late_word_refused(
    database: Database, store_clock: FakeClock
) -> None:
    store = Store(database, store_clock)
    await store.instances.add(Change(an_instance()))
    ours, theirs = turns_of(database, store_clock, 1), turns_of(database, store_clock, 2)
    stopped = await ours.acquire(instance_id(1), None)
    assert stopped is not None
    await store_clock.advance(10)
    assert await theirs.acquire(instance_id(1), None) is not None
    assert await ours.renew() == 0
    with pytest.raises(StaleWrite):
        await ours.save(stopped, Change(replace(stopped.instance, reason="too late")))
    with pytest.raises(StaleWrite):
        await ours.refresh(stopped)


async def test_turns_that_have_ended_or_just_begun_cost_no_renewal(
    database: Database, store_clock: FakeClock
) -> None:
    store = Store(database, store_clock)
    await store.instances.add(Change(an_instance()))
    instance_leases = turns_of(database, store_clock, 1)
    leased = await instance_leases.acquire(instance_id(1), None)
    assert leased is not None
    assert await instance_leases.renew() == 0
    await store_clock.advance(3)
    await instance_leases.release(leased)
    assert await instance_leases.renew() == 0
    until = database.write_now(lambda c: c.execute(sa.select(rental_tables.instance.c.lease_until)).scalar())
    assert until is None


async def test_whoever_signs_is_seen_by_all_until_he_signs_off_or_is_forgotten(database: Database) -> None:
    replicas = SqlReplicas(database)
    first = Replica("r1", "all", "1.0", "here:1", START, START)
    second = Replica("r2", "api", "1.1", "there:2", START + SECOND, START + SECOND)
    await replicas.heartbeat(first, START)
    assert await replicas.heartbeat(second, START) == (first, second)
    again = replace(first, seen_at=START + 5 * SECOND)
    assert await replicas.heartbeat(again, START) == (again, second)
    assert await replicas.heartbeat(again, START + 2 * SECOND) == (again,)
    await replicas.deregister("r1")
    assert await replicas.heartbeat(second, START) == (second,)
