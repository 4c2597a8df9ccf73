"""`herd.events()`: everything once and in order, through whatever the network does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from itertools import islice
from typing import Any

import pytest

from gpuherd.bootstrap.http_server import ConnectionLimits
from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import GpuherdError, NotFound, Unauthorized, UnexpectedReply
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.webhook_models import LiveEvent
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.ports.instance_port import Change
from gpuherd.usecases.events.stream_events import EventFeed
from tests.client.support.server import AnyClient, FakeReply, FakeServer, details, lost, problem
from tests.client.support.server import Herd as Client
from tests.entrypoints.http.conftest import KEY, clock, herd, meter, plane  # noqa: F401
from tests.entrypoints.http.raw_http import running_server
from tests.support.builders import an_event, an_instance, instance_id
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd


def frame(n: int, **more: Any) -> str:
    said = {
        "id": n,
        "instanceId": "inst_1",
        "name": "train-1",
        "sequence": n,
        "type": "instance.ready",
        "at": "2026-05-01T12:00:00.000000Z",
    }
    return f"id: {n}\nevent: instance.ready\ndata: {json.dumps(said | more)}\n\n"


def stream(*pieces: str | None) -> FakeReply:
    return FakeReply(["retry: 2000\n\n", *pieces])


END: dict[str, Any] = {"events": [], "nextCursor": None, "lastEventId": "7"}
GONE = problem(404, "INSTANCE_NOT_FOUND")


async def taken(call: AnyClient, count: int, *args: Any, **more: Any) -> list[LiveEvent]:
    """Take so many events and leave."""
    events: Iterator[LiveEvent] | AsyncIterator[LiveEvent] = call.herd.events(*args, **more)
    if isinstance(events, AsyncIterator):
        got = []
        async with aclosing(events):  # type: ignore[type-var]
            async for event in events:
                got.append(event)
                if len(got) == count:
                    break
        return got
    with closing(events):  # type: ignore[type-var]
        return list(islice(events, count))


async def until_refused(call: AnyClient, kind: type[GpuherdError], **more: Any) -> list[int]:
    got: list[int] = []
    with pytest.raises(kind):
        events = call.herd.events(**more)
        if isinstance(events, AsyncIterator):
            async for event in events:
                got.append(event.id)
        else:
            for event in events:
                got.append(event.id)
    return got


async def test_an_event_tells_what_and_of_what(call: AnyClient, server: FakeServer) -> None:
    server.script(END, stream(frame(8, reason="it answers", details={"a": 1})))
    (event,) = await taken(call, 1)
    assert (event.id, event.type, event.name, event.instance_id) == (8, "instance.ready", "train-1", "inst_1")
    assert (event.reason, event.at.year, event.details) == ("it answers", 2026, {"a": 1})


async def test_it_begins_now_and_a_break_before_the_first_event_leaves_no_gap(
    call: AnyClient, server: FakeServer
) -> None:
    server.script(END, stream(None), lost(), stream(frame(8)), GONE)
    assert [it.id for it in await taken(call, 1)] == [8]
    assert server.asked[0] == "GET /api/events/history?limit=1"
    assert [it.last_event_id for it in server.seen[1:]] == ["7", "7", "7"]
    assert server.seen[1].headers["Last-Event-ID"] == "7"
    assert server.seen[1].headers["Accept"] == "text/event-stream"


async def test_after_each_break_it_goes_on_behind_the_last_event(call: AnyClient, server: FakeServer) -> None:
    cut = frame(5)
    server.script(
        stream(frame(1), frame(2) + frame(3)),
        stream(frame(4), cut[:30], None),
        problem(503, "TOO_MANY_STREAMS", retryAfter=5),
        stream(": still here\n\n", cut[:30], cut[30:]),
        GONE,
    )
    assert await until_refused(call, NotFound, since=0) == [1, 2, 3, 4, 5]
    assert [it.last_event_id for it in server.seen] == ["0", "3", "4", "4", "5"]
    assert max(server.clock.slept) == 5


async def test_a_server_that_is_away_for_long_is_waited_for(call: AnyClient, server: FakeServer) -> None:
    server.script(*[lost()] * 40, stream(frame(1)), GONE)
    assert await until_refused(call, NotFound, since=0) == [1]
    assert max(server.clock.slept[:40]) <= 8
    assert server.clock.slept[-1] <= 0.25


async def test_filters_are_passed_on(call: AnyClient, server: FakeServer) -> None:
    server.script(details(), END, stream(frame(8)))
    instance = await call(lambda it: it.instances.get("train-1"))
    await taken(call, 1, instance, type="instance.ready")
    assert server.asked[1:] == [
        "GET /api/events/history?limit=1&instance=inst_1&type=instance.ready",
        "GET /api/events?instance=inst_1&type=instance.ready",
    ]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(401, "UNAUTHORIZED"), Unauthorized),
        (stream("data: hello\n\n"), UnexpectedReply),
        (stream("data: []\n\n"), UnexpectedReply),
    ],
)
async def test_what_patience_does_not_help_against_is_raised(
    call: AnyClient, server: FakeServer, answer: FakeReply, kind: type[GpuherdError]
) -> None:
    server.script(END, answer)
    assert await until_refused(call, kind) == []


async def test_breaks_and_returns_are_told_once_each(call: AnyClient, server: FakeServer) -> None:
    server.script(END, stream(None), lost(), problem(500, "INTERNAL_ERROR"), stream(frame(8)), GONE)
    told: list[str] = []
    await until_refused(
        call, NotFound, on_break=lambda why: told.append(str(why)), on_resume=lambda: told.append("back")
    )
    assert len(told) == 2 and "the connection broke" in told[0] and told[1] == "back"


class TestOnARealServer:
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.mark.parametrize("kind", ["sync", "async"])
    async def test_nothing_is_missed_or_doubled_when_the_server_ends_all_streams(
        self,
        kind: str,
        plane: Plane,  # noqa: F811
        herd: Herd,  # noqa: F811
        clock: FakeClock,  # noqa: F811
    ) -> None:
        feed = plane.services.event_feed
        async with running_server(plane, ConnectionLimits()) as door:
            url = f"http://127.0.0.1:{door.port}"
            listening = asyncio.create_task(_listen(kind, url, 12))
            async with asyncio.timeout(20):
                for n in range(1, 13):
                    while feed.streams == 0:
                        await asyncio.sleep(0.005)
                    await herd.instances.add(Change(an_instance(n), events=(an_event(n),)))
                    await clock.advance(0.03)
                    await asyncio.sleep(0.01)
                    if n % 4 == 0:
                        _end_all(feed)
                got = await listening
            while feed.streams:
                await asyncio.sleep(0.005)
        assert [(it.id, it.instance_id) for it in got] == [(n, instance_id(n)) for n in range(1, 13)]


def _end_all(feed: EventFeed) -> None:
    for stream in feed._streams:
        stream.end()


async def _listen(kind: str, url: str, count: int) -> list[LiveEvent]:
    if kind == "sync":
        return await asyncio.to_thread(_listen_here, url, count)
    async with AsyncGpuherd(url, KEY) as client:
        return await taken(AnyClient(client), count)


def _listen_here(url: str, count: int) -> list[LiveEvent]:
    with Gpuherd(url, KEY) as client, closing(client.events()) as events:
        return list(islice(events, count))


def test_both_clients_have_it() -> None:
    for client in (Gpuherd, AsyncGpuherd):
        kind: type[Client] = client
        assert kind.events.__doc__
