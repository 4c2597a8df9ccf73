"""Two replicas on one PostgreSQL: what one changes the other hears at once, also after a broken line."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any, cast

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.listen_notify import KEEPALIVE_S, ChangeListener
from gpuherd.adapters.sql.postgres_connection import connect_async
from gpuherd.adapters.sql.rental_tables import instance
from gpuherd.adapters.stores.event_store import SqlEventLog
from gpuherd.domain.cloud.orphan import Orphan, OrphanFinding, OrphanVerdict
from gpuherd.domain.instance.instance_event import ACCOUNT, ORPHAN_DETECTED, Event
from gpuherd.ports.event_port import EVERYTHING, AccountEvent
from gpuherd.ports.instance_port import Change
from gpuherd.ports.observation_port import LedgerWrite
from gpuherd.ports.webhook_port import OutboxEntries
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.events.stream_events import EventFeed, Reader
from tests.support.builders import a_machine, an_event, an_instance, instance_id
from tests.support.fake_clock import START, FakeClock
from tests.support.sql.databases import Store, sqlalchemy_url

pytestmark = pytest.mark.postgres


@pytest.fixture
def database_url(fresh_postgres: str) -> str:
    return sqlalchemy_url(fresh_postgres)


@pytest.fixture
def url(fresh_postgres: str) -> str:
    return fresh_postgres


@pytest.fixture
def here(database_url: str) -> Iterator[Database]:
    """The database as the replica has it that listens."""
    with closing(Database(database_url)) as database:
        yield database


class Heard:
    """What came to the ear."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.everything = 0
        self._news = asyncio.Event()

    def changed(self, instance_ids: Sequence[str]) -> None:
        self.ids += instance_ids
        self._news.set()

    def all_changed(self) -> None:
        self.everything += 1
        self._news.set()

    async def until(self, *ids: str, everything: int = 1) -> None:
        """Wait until these were heard, and nothing else."""
        async with asyncio.timeout(10):
            while len(self.ids) < len(ids) or self.everything < everything:
                self._news.clear()
                await self._news.wait()
        assert self.ids == list(ids)


@asynccontextmanager
async def listening(url: str, own_sender: str, heard: Any, clock: FakeClock) -> AsyncIterator[None]:
    connect = partial(connect_async, f"{sqlalchemy_url(url)}&application_name=ear")
    it = ChangeListener(connect, own_sender, heard.changed, heard.all_changed, clock, random.Random(1))
    it.start()
    try:
        yield
    finally:
        await it.stop()
        await it.stop()


async def test_a_change_of_another_replica_is_heard_and_ones_own_is_not(
    store: Store, here: Database, url: str
) -> None:
    heard, ours = Heard(), Store(here, FakeClock())
    async with listening(url, here.sender, heard, FakeClock()):
        await heard.until()
        await ours.instances.add(Change(an_instance(1)))
        added = await store.instances.add(Change(an_instance(2)))
        await store.instances.update(Change(added))
        leased = await store.instance_leases.acquire(added.id, None)
        assert leased is not None
        await store.instance_leases.save(leased, Change(leased.instance))
        await heard.until(*[instance_id(2)] * 3)


async def test_what_was_not_committed_is_not_told(store: Store, here: Database, url: str) -> None:
    heard = Heard()
    async with listening(url, here.sender, heard, FakeClock()):
        await heard.until()
        with pytest.raises(sa.exc.IntegrityError):
            await store.instances.add(Change(an_instance(1), events=(an_event(1), an_event(1))))
        await store.instances.add(Change(an_instance(2)))
        await heard.until(instance_id(2))


async def test_the_account_and_what_is_forgotten_are_told_too(store: Store, here: Database, url: str) -> None:
    heard = Heard()
    orphan = Orphan(
        a_machine(1), OrphanFinding(OrphanVerdict.FOREIGN, "x"), first_seen_at=START, judged_at=START
    )
    news = AccountEvent(Event(ACCOUNT, 0, ORPHAN_DETECTED, START), lambda _: OutboxEntries())
    await store.instances.add(Change(an_instance(1)))
    gone = sa.update(instance).values(status="deleted", settled=True, created_at=START)
    await store.run(gone)
    async with listening(url, here.sender, heard, FakeClock()):
        await heard.until()
        await store.orphans.save([LedgerWrite(orphan, account=(news,))])
        await store.retention.prune_instances(START.replace(year=2027))
        await heard.until(ACCOUNT, instance_id(1))


async def test_hundreds_at_once_are_all_told(store: Store, here: Database, url: str) -> None:
    heard = Heard()
    async with listening(url, here.sender, heard, FakeClock()):
        await heard.until()
        wanted = [instance_id(n) for n in range(1, 301)]
        await asyncio.gather(*(store.instances.add(Change(an_instance(n))) for n in range(1, 301)))
        async with asyncio.timeout(10):
            while len(heard.ids) < 300:
                await asyncio.sleep(0.005)
        assert sorted(heard.ids) == wanted


async def test_after_a_lost_connection_everything_counts_as_changed(
    store: Store, here: Database, url: str
) -> None:
    heard, clock = Heard(), FakeClock(auto=True)
    async with listening(url, here.sender, heard, clock):
        await heard.until()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'ear'"
            )
        # At the loss, and when it listens again.
        await heard.until(everything=3)
        await store.instances.add(Change(an_instance(1)))
        await heard.until(instance_id(1), everything=3)


class Dead:
    """A connection that was forgotten by the network: nothing comes, and nothing is answered."""

    def __init__(self, clock: FakeClock) -> None:
        self.closed = False
        self._clock = clock

    async def execute(self, statement: str) -> None:
        if not statement.startswith("LISTEN"):
            raise TimeoutError

    async def notifies(self, *, timeout: float) -> AsyncIterator[Any]:  # noqa: ASYNC109  their name
        await self._clock.sleep(timeout)
        return
        yield

    async def close(self) -> None:
        self.closed = True


async def test_a_connection_that_is_only_silent_is_noticed_and_pauses_grow() -> None:
    clock, heard = FakeClock(), Heard()
    made: list[Dead] = []

    async def connect() -> Dead:
        if len(made) == 2:
            made.append(Dead(clock))
            raise ConnectionRefusedError
        made.append(Dead(clock))
        return made[-1]

    it = ChangeListener(cast(Any, connect), "me", heard.changed, heard.all_changed, clock, random.Random(1))
    it.start()
    await clock.advance(KEEPALIVE_S - 1)
    assert (len(made), heard.everything) == (1, 1)
    await clock.advance(2)
    assert (len(made), heard.everything) == (2, 3)
    assert made[0].closed
    await clock.advance(KEEPALIVE_S + 1.5)
    assert (len(made), heard.everything) == (4, 5)
    await it.stop()
    assert made[3].closed


async def test_what_is_remembered_counts_no_more_from_the_moment_that_nothing_can_be_heard() -> None:
    """Whatever answers next may have lost the newest changes, and no notice will tell of that."""
    clock, heard, gone = FakeClock(), Heard(), False

    async def connect() -> Dead:
        if gone:
            raise ConnectionRefusedError
        return Dead(clock)

    it = ChangeListener(cast(Any, connect), "me", heard.changed, heard.all_changed, clock, random.Random(1))
    it.start()
    await clock.advance(KEEPALIVE_S - 1)
    assert heard.everything == 1, "it listens"
    gone = True
    await clock.advance(1.01)
    assert heard.everything == 2, "it is deaf"
    await it.stop()


async def test_streams_and_long_polls_of_another_replica_hear_at_once(
    store: Store, here: Database, url: str
) -> None:
    # A clock that stands still: nothing is found by looking again.
    clock = FakeClock()
    hub = ChangeHub(clock)
    feed = EventFeed(SqlEventLog(here, clock), hub, clock)

    class Ear:
        changed, all_changed = staticmethod(hub.changed), staticmethod(hub.everything_changed)

    async with listening(url, here.sender, Ear, clock), feed.open(Reader("me", EVERYTHING)) as stream:
        coming = asyncio.create_task(stream.next())
        await asyncio.wait_for(feed.ready(), 10)
        async with hub.subscribe(instance_id(1)) as changes:
            await asyncio.sleep(0.2)
            # What was rung so far is only that the ear has begun to listen.
            await clock.advance(0.5)
            waiting = asyncio.create_task(changes.wait(60))
            await clock.settle()
            await store.instances.add(Change(an_instance(1), events=(an_event(1),)))
            assert await asyncio.wait_for(waiting, 10)
        async with asyncio.timeout(20):
            while not coming.done():
                # The feed pauses a moment before it reads, by this clock; the notice comes by the real one.
                await clock.advance(0.1)
                await asyncio.sleep(0.02)
        assert b"id: 1\n" in (await coming or b"")
