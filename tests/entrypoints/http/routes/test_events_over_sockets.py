"""Streams over real sockets: they end with the client, with the server, and when nobody reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gpuherd.bootstrap.http_server import ConnectionLimits
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.ports.event_port import EventFilter
from gpuherd.ports.instance_port import Change
from gpuherd.usecases.events.stream_events import StreamLimits, read_events_before
from tests.entrypoints.http.conftest import KEY
from tests.entrypoints.http.raw_http import running_server, until_closed
from tests.support.builders import an_event, an_instance
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

ASK = (
    b"GET /api/events HTTP/1.1\r\nHost: gpuherd\r\nLast-Event-ID: 0\r\n"
    b"Authorization: Bearer " + KEY.encode() + b"\r\n\r\n"
)
END = b"\r\n0\r\n\r\n"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


async def test_the_end_of_the_server_ends_a_stream_as_a_reply_should_end(plane: Plane) -> None:
    async with running_server(plane, ConnectionLimits()) as door:
        reader, writer = await door.connect()
        writer.write(ASK)
        got = await reader.readuntil(b"retry: 2000\n\n")
        assert b"transfer-encoding: chunked" in got.lower()
    # Cut off, it would lack the last chunk.
    assert (await until_closed(reader)).endswith(END)
    assert plane.services.event_feed.streams == 0
    writer.close()


async def test_a_client_that_goes_away_leaves_nothing_behind(plane: Plane) -> None:
    async with running_server(plane, ConnectionLimits()) as door:
        doors = [await door.connect() for _ in range(5)]
        for _, writer in doors:
            writer.write(ASK)
        await until(lambda: plane.services.event_feed.streams == 5)
        for _, writer in doors:
            writer.transport.abort()
        await until(lambda: plane.services.event_feed.streams == 0)


async def test_a_client_that_never_reads_is_cut_off_and_costs_only_itself(
    plane: Plane, herd: Herd, clock: FakeClock
) -> None:
    plane.services.event_feed.limits = StreamLimits(pending=20)
    async with running_server(plane, ConnectionLimits(idle_s=0.3)) as door:
        deaf, good = await door.connect(), await door.connect()
        deaf[0]._transport.pause_reading()  # type: ignore[attr-defined]
        for _, writer in (deaf, good):
            writer.write(ASK)
        await until(lambda: plane.services.event_feed.streams == 2)
        reading = asyncio.create_task(until_closed(good[0]))
        for n in range(1, 200):
            told = an_event(n, reason="x" * 100_000)
            await herd.instances.add(Change(an_instance(n), events=(told,)))
            await clock.advance(0.05)
            await asyncio.sleep(0.001)
            if plane.services.event_feed.streams == 1:
                break
        await until(lambda: plane.services.event_feed.streams == 1)
        await clock.advance(1)
        await asyncio.sleep(0.1)
        last = (await read_events_before(plane.services, None, 1, EventFilter())).last
        good[1].transport.write_eof()
        await until(lambda: plane.services.event_feed.streams == 0)
        deaf[1].transport.abort()
        assert (await reading).count(b"\nevent: ") == last
