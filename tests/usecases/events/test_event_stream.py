"""The feed: every stream gets what it wants, once and in order; it costs nothing when nobody listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.instance.instance_event import ACCOUNT, Event
from gpuherd.ports.event_port import (
    EVERYTHING,
    EventFilter,
    EventPage,
    LoggedEvent,
)
from gpuherd.usecases.events import stream_events
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.events.stream_events import (
    HEARTBEAT,
    EventFeed,
    EventStream,
    Reader,
    StreamLimits,
    TooManyStreams,
    TooManyStreamsOfKey,
)
from tests.support.builders import instance_id
from tests.support.fake_clock import START, FakeClock


class ListLog:
    """The port `EventLog` on a list, which takes a moment to answer."""

    def __init__(self, hub: ChangeHub) -> None:
        self.events: list[LoggedEvent] = []
        self.reads = 0
        self.fails = False
        self._hub = hub

    def happen(self, n: int = 1, kind: str = "a", owner: str = "ada", *, ring: bool = True) -> int:
        position = self.events[-1].position + 1 if self.events else 1
        event = Event(instance_id(n), position, kind, START)
        self.events.append(LoggedEvent(position, event, f"job-{n}", owner))
        if ring:
            self._hub.changed([instance_id(n)])
        return position

    async def after(self, position: int, limit: int, wanted: EventFilter = EVERYTHING) -> EventPage:
        await self._answer()
        end = self.events[-1].position if self.events else 0
        found = [it for it in self.events if it.position > position and wanted.wants(it)]
        shown, more = tuple(found[:limit]), len(found) > limit
        # What happens while the reply is on its way is not in it.
        await asyncio.sleep(0)
        return EventPage(shown, shown[-1].position if more else max(position, end), more)

    async def before(
        self, position: int | None, limit: int, wanted: EventFilter = EVERYTHING
    ) -> tuple[LoggedEvent, ...]:
        raise NotImplementedError

    async def newest(self) -> int:
        await self._answer()
        return self.events[-1].position if self.events else 0

    async def highest(self) -> int:
        return await self.newest()

    async def _answer(self) -> None:
        self.reads += 1
        await asyncio.sleep(0)
        if self.fails:
            raise StoreUnavailable("away")


class Listener:
    """Takes what a stream gives, as fast as it comes."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.raw: list[bytes] = []
        self.over = False
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (chunk := await self.stream.next()) is not None:
            self.raw.append(chunk)
        self.over = True

    @property
    def got(self) -> list[int]:
        return ids(b"".join(self.raw))


def ids(chunk: bytes) -> list[int]:
    return [int(line[4:]) for line in chunk.split(b"\n") if line.startswith(b"id: ")]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def hub(clock: FakeClock) -> ChangeHub:
    return ChangeHub(clock)


@pytest.fixture
def log(hub: ChangeHub) -> ListLog:
    return ListLog(hub)


@pytest.fixture
def feed(log: ListLog, hub: ChangeHub, clock: FakeClock) -> EventFeed:
    return EventFeed(log, hub, clock)


@asynccontextmanager
async def listening(
    feed: EventFeed,
    clock: FakeClock,
    wanted: EventFilter = EVERYTHING,
    last: int | None = None,
    key_id: str = "ada",
    **more: object,
) -> AsyncIterator[Listener]:
    async with feed.open(Reader(key_id, wanted, last, **more)) as stream:  # type: ignore[arg-type]
        it = Listener(stream)
        await clock.settle()
        try:
            yield it
        finally:
            it.task.cancel()
            await asyncio.gather(it.task, return_exceptions=True)


class TestLostEnd:
    """A log that loses its newest events gives their numbers out again."""

    @pytest.mark.proves("F34")
    async def test_what_takes_the_place_of_lost_events_is_told_and_nothing_else_again(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        log.happen()
        async with listening(feed, clock) as it:
            for _ in range(4):
                log.happen()
            await clock.advance(0.1)
            assert it.got == [2, 3, 4, 5]
            del log.events[3:]
            feed.forget()
            log.happen(7)
            await clock.advance(2)
            assert it.got == [2, 3, 4, 5, 4]
            log.happen(8)
            await clock.advance(2)
            assert it.got == [2, 3, 4, 5, 4, 5]

    async def test_a_stream_goes_on_where_even_its_beginning_was_lost(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        for _ in range(5):
            log.happen()
        async with listening(feed, clock) as it:
            del log.events[2:]
            feed.forget()
            await clock.advance(2)
            log.happen(7)
            await clock.advance(2)
            assert it.got == [3]

    async def test_a_stream_that_was_catching_up_does_not_stay_ahead_of_the_log(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        for _ in range(5):
            log.happen()
        async with listening(feed, clock), listening(feed, clock, last=1) as it:
            assert it.got == [2, 3, 4, 5]
            del log.events[1:]
            feed.forget()
            await clock.advance(2)
            log.happen(7)
            await clock.advance(2)
            assert it.got == [2, 3, 4, 5, 2]


class TestHandingOut:
    async def test_without_a_last_id_a_stream_begins_now(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        log.happen()
        async with listening(feed, clock) as it:
            log.happen()
            await clock.advance(0.1)
            assert it.got == [2]

    async def test_a_message_has_id_type_and_one_line_of_json(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        async with listening(feed, clock) as it:
            log.happen(7, "instance.ready")
            await clock.advance(0.1)
        (chunk,) = it.raw
        head, kind, data, *rest = chunk.decode().split("\n")
        assert (head, kind, rest) == ("id: 1", "event: instance.ready", ["", ""])
        said = json.loads(data.removeprefix("data: "))
        assert said["id"] == 1
        assert (said["instanceId"], said["name"], said["type"]) == (
            instance_id(7),
            "job-7",
            "instance.ready",
        )

    async def test_an_event_of_the_account_has_no_instance(
        self, feed: EventFeed, log: ListLog, hub: ChangeHub, clock: FakeClock
    ) -> None:
        async with listening(feed, clock) as it:
            log.events.append(LoggedEvent(1, Event(ACCOUNT, 1, "instance.orphan_detected", START)))
            hub.changed([ACCOUNT])
            await clock.advance(0.1)
        assert b'"instanceId":null,"name":null' in it.raw[0]

    async def test_what_another_replica_wrote_is_found_without_a_bell(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        async with listening(feed, clock) as it:
            log.happen(ring=False)
            await clock.advance(stream_events.POLL_INTERVAL_S)
            assert it.got == [1]

    async def test_fifty_streams_get_everything_in_order_for_one_read(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        async with AsyncExitStack() as stack:
            them = [await stack.enter_async_context(listening(feed, clock)) for _ in range(50)]
            before = log.reads
            for n in range(30):
                log.happen(n)
            await clock.advance(0.1)
            assert all(it.got == list(range(1, 31)) for it in them)
            assert log.reads - before <= 2

    async def test_nobody_is_told_what_he_did_not_ask_for(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        filters = [
            EventFilter("ada"),
            EventFilter("bob"),
            EventFilter(None, instance_id(2)),
            EventFilter(type="b"),
        ]
        async with AsyncExitStack() as stack:
            them = [await stack.enter_async_context(listening(feed, clock, it)) for it in filters]
            log.happen(1, "a", "ada")
            log.happen(2, "b", "bob")
            log.happen(3, "b", "ada")
            await clock.advance(0.1)
            assert [it.got for it in them] == [[1, 3], [2], [2], [2, 3]]

    async def test_while_nobody_listens_nothing_is_read(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        async with listening(feed, clock):
            pass
        before = log.reads
        log.happen()
        await clock.advance(60)
        assert log.reads == before
        assert (feed.streams, clock.sleepers) == (0, 0)

    async def test_after_a_pause_without_listeners_a_new_one_begins_anew(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        async with listening(feed, clock):
            log.happen()
            await clock.advance(1)
        log.happen()
        async with listening(feed, clock) as it, listening(feed, clock, last=0) as other:
            log.happen()
            await clock.advance(1)
            assert (it.got, other.got) == ([3], [1, 2, 3])

    async def test_a_store_that_is_away_for_a_while_costs_no_event(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        async with listening(feed, clock) as it:
            log.fails = True
            log.happen()
            await clock.advance(5)
            log.fails = False
            log.happen(ring=False)
            await clock.advance(stream_events.STORE_RETRY_S)
            assert it.got == [1, 2]


class TestResuming:
    @pytest.mark.parametrize("missed", [0, 1, 199, 200, 201, 450])
    async def test_what_was_missed_comes_first_and_nothing_twice(
        self, feed: EventFeed, log: ListLog, clock: FakeClock, missed: int
    ) -> None:
        for _ in range(missed + 3):
            log.happen()
        async with listening(feed, clock, last=3) as it:
            log.happen()
            await clock.advance(1)
            assert it.got == list(range(4, missed + 5))

    async def test_it_joins_without_gap_or_repeat_while_things_go_on_happening(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        for _ in range(500):
            log.happen()
        async with listening(feed, clock), feed.open(Reader("ada", EVERYTHING, 0)) as stream:
            it = Listener(stream)
            for _ in range(700):
                log.happen()
                await asyncio.sleep(0)
            await clock.advance(1)
            assert it.got == list(range(1, 1201))
            it.task.cancel()

    async def test_a_stream_that_breaks_anywhere_goes_on_where_it_was(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        got: list[int] = []
        async with listening(feed, clock):
            for turn in range(20):
                async with listening(feed, clock, EventFilter("ada"), last=got[-1] if got else 0) as it:
                    for n in range(turn):
                        log.happen(owner="ada" if n % 3 else "bob")
                        await clock.advance(0.03 * (turn % 4))
                got += it.got
            async with listening(feed, clock, EventFilter("ada"), last=got[-1]) as it:
                await clock.advance(1)
            got += it.got
        assert got == [it.position for it in log.events if it.owner == "ada"]

    async def test_a_last_id_that_there_never_was_begins_now(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        for _ in range(3):
            log.happen()
        async with listening(feed, clock, last=500) as it:
            log.happen()
            await clock.advance(1)
            assert it.got == [4]

    async def test_a_last_id_ahead_of_this_replica_gets_nothing_twice(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        log.happen()
        async with listening(feed, clock):
            # Another replica has read these already, and this one has not.
            log.happen(ring=False)
            log.happen(ring=False)
            async with listening(feed, clock, last=3) as it:
                log.happen()
                await clock.advance(1)
                assert it.got == [4]

    async def test_when_the_past_cannot_be_read_the_stream_ends_and_can_be_resumed(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        log.happen()
        async with listening(feed, clock):
            log.fails = True
            async with listening(feed, clock, last=0) as it:
                await clock.advance(1)
                assert (it.got, it.over) == ([], True)


class TestEnding:
    async def test_a_reader_that_is_too_slow_is_ended_and_finds_the_rest_later(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        feed.limits = StreamLimits(pending=20)
        async with listening(feed, clock) as quick, feed.open(Reader("ada", EVERYTHING, 0)) as stream:
            log.happen()
            await clock.advance(0.1)
            got = ids(await stream.next() or b"")
            assert got == [1]
            # It does not come back for the next for a while.
            waiting = asyncio.create_task(stream.next())
            await clock.settle()
            for _ in range(60):
                log.happen()
                await clock.advance(0.05)
            first = await waiting
            assert first is not None
            got += ids(first)
            assert await stream.next() is None
            assert got == [1, 2]
            assert quick.got == list(range(1, 62))
        async with listening(feed, clock, last=2) as again:
            await clock.advance(1)
            assert again.got == list(range(3, 62))

    async def test_a_quiet_stream_gives_a_sign_of_life(self, feed: EventFeed, clock: FakeClock) -> None:
        async with listening(feed, clock) as it:
            await clock.advance(stream_events.HEARTBEAT_S * 3 + 5)
            assert it.raw == [HEARTBEAT] * 3

    async def test_events_are_signs_of_life(self, feed: EventFeed, log: ListLog, clock: FakeClock) -> None:
        async with listening(feed, clock) as it:
            for _ in range(5):
                await clock.advance(10)
                log.happen()
            assert HEARTBEAT not in it.raw

    async def test_who_may_not_read_any_more_is_sent_away_within_seconds(
        self, feed: EventFeed, log: ListLog, clock: FakeClock
    ) -> None:
        allowed = True
        async with listening(feed, clock, may_read=lambda: allowed) as it, listening(feed, clock) as other:
            allowed = False
            await clock.advance(stream_events.STREAM_CHECK_S)
            assert (it.over, other.over) == (True, False)

    async def test_closing_ends_all_streams_and_lets_nobody_in(
        self, feed: EventFeed, clock: FakeClock
    ) -> None:
        async with listening(feed, clock) as one, listening(feed, clock) as two:
            feed.close()
            await clock.settle()
            assert one.over
            assert two.over
            with pytest.raises(TooManyStreams):
                async with feed.open(Reader("ada", EVERYTHING)):
                    pass
        assert feed.streams == 0

    async def test_there_are_only_so_many_streams_for_a_key_and_in_all(
        self, feed: EventFeed, clock: FakeClock
    ) -> None:
        feed.limits = StreamLimits(streams=3, streams_of_key=2)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(listening(feed, clock))
            async with listening(feed, clock):
                with pytest.raises(TooManyStreamsOfKey):
                    await stack.enter_async_context(listening(feed, clock))
                await stack.enter_async_context(listening(feed, clock, key_id="bob"))
                with pytest.raises(TooManyStreams):
                    await stack.enter_async_context(listening(feed, clock, key_id="eve"))
            # The place of one that has gone is free again.
            await stack.enter_async_context(listening(feed, clock))
            assert feed.streams == 3
