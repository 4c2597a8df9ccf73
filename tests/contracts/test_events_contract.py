"""What the port `EventLog` promises, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.rental_tables import event, instance
from gpuherd.adapters.stores.event_store import SqlEventLog
from gpuherd.adapters.stores.row_codec import event_row
from gpuherd.domain.cloud.orphan import Orphan, OrphanFinding, OrphanVerdict
from gpuherd.domain.instance.instance_event import (
    ACCOUNT,
    ORPHAN_DETECTED,
    READY,
    Event,
)
from gpuherd.ports.event_port import AccountEvent, EventFilter, LoggedEvent
from gpuherd.ports.instance_port import Change
from gpuherd.ports.observation_port import LedgerWrite
from gpuherd.ports.webhook_port import OutboxEntries
from tests.support.builders import a_machine, an_event, an_instance, instance_id
from tests.support.fake_clock import START, FakeClock
from tests.support.sql.databases import Store, all_at_once, sqlalchemy_url


@pytest.fixture(autouse=True)
def on_sql(database_url: str) -> None:
    if database_url == "memory:":
        pytest.skip("only SQL keeps a log that can be read across instances")


async def happen(store: Store, n: int, *types: str, owner: str = "admin") -> None:
    """Make the n-th instance with these events."""
    events = tuple(an_event(n, sequence, type=kind) for sequence, kind in enumerate(types, 1))
    await store.instances.add(Change(an_instance(n, owner=owner), events=events))


async def happen_to_the_account(store: Store) -> None:
    orphan = Orphan(
        a_machine(1), OrphanFinding(OrphanVerdict.FOREIGN, "x"), first_seen_at=START, judged_at=START
    )
    news = AccountEvent(Event(ACCOUNT, 0, ORPHAN_DETECTED, START), lambda _: OutboxEntries())
    await store.orphans.save([LedgerWrite(orphan, account=(news,))])


def told(events: tuple[LoggedEvent, ...]) -> list[tuple[str, str]]:
    return [(it.event.instance_id, it.event.type) for it in events]


class TestReading:
    async def test_an_empty_log_ends_where_it_begins(self, store: Store) -> None:
        page = await store.events.after(0, 10)
        assert (page.events, page.position, page.more, page.held_up) == ((), 0, False, False)
        assert await store.events.newest() == await store.events.highest() == 0
        assert await store.events.before(None, 10) == ()

    async def test_everything_comes_in_the_order_in_which_it_happened_with_whose_it_is(
        self, store: Store
    ) -> None:
        await happen(store, 2, "a", "b", owner="ada")
        await happen_to_the_account(store)
        await happen(store, 1, "c")
        page = await store.events.after(0, 10)
        two, one = instance_id(2), instance_id(1)
        assert told(page.events) == [(two, "a"), (two, "b"), (ACCOUNT, ORPHAN_DETECTED), (one, "c")]
        assert [(it.name, it.owner) for it in page.events] == [
            ("job-2", "ada"),
            ("job-2", "ada"),
            (None, None),
            ("job-1", "admin"),
        ]
        assert page.events[0].event == an_event(2, 1, type="a")
        assert [it.position for it in page.events] == sorted({it.position for it in page.events})
        assert page.position == page.events[-1].position == await store.events.newest()
        assert page.position == await store.events.highest()

    async def test_pages_neither_miss_nor_repeat_anything(self, store: Store) -> None:
        for n in range(1, 8):
            await happen(store, n, "a")
        position, seen, pages = 0, [], 0
        while True:
            page = await store.events.after(position, 3)
            seen += [it.event.instance_id for it in page.events]
            position, pages = page.position, pages + 1
            if not page.more:
                break
        assert seen == [instance_id(n) for n in range(1, 8)]
        assert pages == 3
        await happen(store, 8, "b")
        assert told((await store.events.after(position, 3)).events) == [(instance_id(8), "b")]

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (EventFilter(owner="ada"), ["a", READY]),
            (EventFilter(owner="bob"), ["b"]),
            (EventFilter(owner="nobody"), []),
            (EventFilter(instance_id=instance_id(2)), ["b"]),
            (EventFilter(instance_id=ACCOUNT), [ORPHAN_DETECTED]),
            (EventFilter(owner="bob", instance_id=instance_id(1)), []),
            (EventFilter(type=READY), [READY]),
            (EventFilter(), ["a", READY, "b", ORPHAN_DETECTED]),
        ],
    )
    async def test_a_filter_shows_its_own_and_still_tells_how_far_it_looked(
        self, store: Store, wanted: EventFilter, expected: list[str]
    ) -> None:
        await happen(store, 1, "a", READY, owner="ada")
        await happen(store, 2, "b", owner="bob")
        await happen_to_the_account(store)
        page = await store.events.after(0, 10, wanted)
        assert [it.event.type for it in page.events] == expected
        # Here and in the stream the same is meant.
        everything = (await store.events.after(0, 10)).events
        assert page.events == tuple(filter(wanted.wants, everything))
        assert page.position == everything[-1].position
        newest_first = await store.events.before(None, 10, wanted)
        assert newest_first == tuple(reversed(page.events))

    async def test_leafing_back_ends_at_the_beginning(self, store: Store) -> None:
        for n in range(1, 6):
            await happen(store, n, "a")
        latest = await store.events.before(None, 2)
        earlier = await store.events.before(latest[-1].position, 10)
        assert [it.event.instance_id for it in (*latest, *earlier)] == [
            instance_id(n) for n in (5, 4, 3, 2, 1)
        ]
        assert await store.events.before(earlier[-1].position, 10) == ()

    async def test_what_was_forgotten_is_no_obstacle(self, store: Store) -> None:
        for n in range(1, 5):
            await happen(store, n, "a")
        await store.run(sa.delete(event).where(event.c.instance_id.in_([instance_id(1), instance_id(3)])))
        cold = SqlEventLog(store.database, store.clock)
        for log in (store.events, cold):
            page = await log.after(0, 10)
            assert [it.event.instance_id for it in page.events] == [instance_id(2), instance_id(4)]


class TestForgetting:
    async def test_events_of_a_forgotten_instance_go_with_it_and_reading_goes_on(self, store: Store) -> None:
        await happen(store, 1, "a", "b")
        await happen(store, 2, "c")
        gone = sa.update(instance).where(instance.c.id == instance_id(1))
        await store.run(gone.values(status="deleted", settled=True))
        assert await store.retention.prune_instances(START + timedelta(days=7)) == 1
        page = await store.events.after(1, 10)
        assert told(page.events) == [(instance_id(2), "c")]

    async def test_events_of_the_account_are_written_with_their_webhooks_and_numbered(
        self, store: Store
    ) -> None:
        heard: list[Event] = []

        def outbox_entries_for(it: Event) -> OutboxEntries:
            heard.append(it)
            return OutboxEntries()

        await happen_to_the_account(store)
        news = [AccountEvent(Event(ACCOUNT, 0, kind, START), outbox_entries_for) for kind in ("a.b", "c.d")]
        await store.events.append_account(news)
        assert [(it.type, it.sequence) for it in heard] == [("a.b", 2), ("c.d", 3)]
        found = (await store.events.after(0, 9)).events
        assert told(found) == [(ACCOUNT, ORPHAN_DETECTED), (ACCOUNT, "a.b"), (ACCOUNT, "c.d")]

    async def test_events_of_the_account_are_forgotten_but_for_the_latest(self, store: Store) -> None:
        rows = [
            event_row(Event(ACCOUNT, n, ORPHAN_DETECTED, START + timedelta(days=day)))
            for n, day in enumerate((0, 1, 2, 40, 41), 1)
        ]
        await store.run(sa.insert(event).values(rows[:3]))
        await happen(store, 1, "a")
        month = START + timedelta(days=30)
        assert await store.retention.prune_account_events(month) == 2
        assert [it.event.sequence for it in (await store.events.after(0, 9)).events] == [3, 1]
        await store.run(sa.insert(event).values(rows[3:]))
        assert await store.retention.prune_account_events(month) == 1
        assert [it.event.sequence for it in (await store.events.after(0, 9)).events] == [1, 4, 5]


@contextmanager
def half_written(url: str, n: int) -> Iterator[psycopg.Connection]:
    """Have an event written by somebody who has not committed yet."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO event (instance_id, sequence, type, at, doc) VALUES (%s, 1, 'held', 0, %s)",
            (instance_id(n), '{"actor":"","reason":"","before":"","after":"","details":{}}'),
        )
        yield connection
        connection.rollback()


@pytest.mark.postgres
class TestSeveralWriters:
    """PostgreSQL only: SQLite has one writer."""

    @pytest.fixture(params=["postgres"])
    def database_url(self, fresh_postgres: str) -> str:
        self.url = fresh_postgres
        return sqlalchemy_url(fresh_postgres)

    async def test_an_event_that_is_committed_late_is_waited_for(self, store: Store) -> None:
        await happen(store, 1, "a")
        start = await store.events.newest()
        with half_written(self.url, 2) as other:
            await happen(store, 3, "b")
            for _ in range(3):
                page = await store.events.after(start, 10)
                assert (page.events, page.position, page.held_up) == ((), start, True)
                assert await store.events.before(None, 1) == (await store.events.after(0, 1)).events
            assert await store.events.highest() > start
            other.commit()
            page = await store.events.after(start, 10)
            assert told(page.events) == [(instance_id(2), "held"), (instance_id(3), "b")]
            assert not page.held_up

    async def test_a_number_that_was_undone_is_passed_over(self, store: Store) -> None:
        start = await store.events.newest()
        with half_written(self.url, 2) as other:
            await happen(store, 3, "b")
            assert (await store.events.after(start, 10)).held_up
            other.rollback()
            page = await store.events.after(start, 10)
            assert told(page.events) == [(instance_id(3), "b")]

    async def test_what_comes_before_the_gap_does_not_wait(self, store: Store) -> None:
        start = await store.events.newest()
        await happen(store, 1, "a")
        with half_written(self.url, 2):
            await happen(store, 3, "b")
            page = await store.events.after(start, 10)
            assert told(page.events) == [(instance_id(1), "a")]
            assert page.held_up

    async def test_later_writers_do_not_prolong_the_wait(self, store: Store) -> None:
        start = await store.events.newest()
        with half_written(self.url, 2) as first:
            await happen(store, 3, "b")
            assert (await store.events.after(start, 10)).held_up
            with half_written(self.url, 4):
                await happen(store, 5, "c")
                first.rollback()
                assert told((await store.events.after(start, 10)).events) == [(instance_id(3), "b")]
            assert told((await store.events.after(start, 10)).events)[1:] == [(instance_id(5), "c")]

    async def test_who_writes_no_events_holds_nobody_up(self, store: Store) -> None:
        start = await store.events.newest()
        with psycopg.connect(self.url) as busy, half_written(self.url, 2) as other:
            busy.execute("UPDATE installation SET value = value")
            await happen(store, 3, "b")
            other.rollback()
            assert told((await store.events.after(start, 10)).events) == [(instance_id(3), "b")]

    async def test_a_reader_that_begins_in_the_middle_waits_for_firm_ground(
        self, store: Store, store_clock: FakeClock
    ) -> None:
        for n in (1, 2, 3):
            await happen(store, n, "a")
        await store.run(sa.delete(event).where(event.c.instance_id == instance_id(1)))
        with half_written(self.url, 4) as other:
            await happen(store, 5, "b")
            cold = SqlEventLog(store.database, store_clock)
            async with beginning(cold) as first:
                await asyncio.sleep(0.05)
                assert not first.done()
                other.commit()
                while not first.done():
                    await store_clock.advance(1)
                    await asyncio.sleep(0.001)
                assert first.result() == await cold.highest()

    async def test_many_writers_and_a_reader_that_never_rests(self, store: Store, other_store: Store) -> None:
        await store.events.newest()
        seen: list[LoggedEvent] = []
        position, writing = 0, asyncio.create_task(_write_and_fail(store, other_store))
        while True:
            over = writing.done()
            page = await store.events.after(position, 7)
            seen += page.events
            position = page.position
            if over and not page.more and not page.held_up:
                break
        rows = sorted(row.id for row in await store.rows(event))
        assert [it.position for it in seen] == rows
        assert len(rows) > 60


@asynccontextmanager
async def beginning(log: SqlEventLog) -> AsyncIterator[asyncio.Task[int]]:
    task = asyncio.create_task(log.newest())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _write_and_fail(*stores: Store) -> None:
    """Write from two processes at once; some of it fails after it has got its numbers."""

    async def one(n: int) -> None:
        store = stores[n % 2]
        doubled = replace(an_event(n, 1, type="a"), sequence=1)
        events = (doubled, doubled) if n % 5 == 0 else (doubled,)
        await store.instances.add(Change(an_instance(n), events=events))

    for start in range(0, 80, 20):
        await all_at_once(20, lambda n, start=start: one(start + n + 1))  # type: ignore[misc]
