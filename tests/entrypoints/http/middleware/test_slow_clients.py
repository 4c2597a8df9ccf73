"""Clients that take their time, over real sockets, with limits short enough to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gpuherd.bootstrap import http_server
from gpuherd.bootstrap.http_server import ConnectionLimits
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import KEY
from tests.entrypoints.http.raw_http import RawReply, RunningServer, running_server, until_closed
from tests.support.herd import Herd

SHORT = ConnectionLimits(head_s=0.2, body_s=0.2, idle_s=0.2)
LONG = ConnectionLimits()
HEAD = b"GET /livez HTTP/1.1\r\nHost: gpuherd\r\n"
LAST = HEAD + b"Connection: close\r\n\r\n"
POST = b"POST /api/instances HTTP/1.1\r\nHost: gpuherd\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n"


@pytest.fixture
async def door(plane: Plane) -> AsyncIterator[RunningServer]:
    async with running_server(plane, SHORT) as it:
        yield it


async def drip(door: RunningServer, first: bytes, drop: bytes) -> RawReply:
    """Send something, then one drop after the other until the server has had enough."""
    reader, writer = await door.connect()
    writer.write(first)
    listening = asyncio.create_task(until_closed(reader))
    with contextlib.suppress(ConnectionError):
        while not listening.done():
            writer.write(drop)
            await writer.drain()
            await asyncio.wait([listening], timeout=0.02)
    writer.close()
    return RawReply(await listening)


class TestHeads:
    async def test_a_head_that_drips_is_cut(self, door: RunningServer) -> None:
        assert (await drip(door, HEAD, b"X-Drop: 1\r\n")).raw == b""

    async def test_a_connection_that_says_nothing_is_cut(self, door: RunningServer) -> None:
        assert (await door.send(b"")).raw == b""

    async def test_a_head_that_drips_after_a_good_request_is_cut(self, door: RunningServer) -> None:
        reply = await drip(door, HEAD + b"\r\n" + HEAD, b"X-Drop: 1\r\n")
        assert reply.status == 200
        assert reply.raw.count(b"HTTP/1.1") == 1

    async def test_blank_lines_between_requests_do_not_stop_the_clock(self, door: RunningServer) -> None:
        assert (await drip(door, HEAD + b"\r\n", b"\r\n")).status == 200

    async def test_an_idle_connection_is_closed(self, door: RunningServer) -> None:
        assert (await door.send(HEAD + b"\r\n")).status == 200

    async def test_a_head_in_pieces_is_as_good_as_any(self, plane: Plane) -> None:
        async with running_server(plane, LONG) as door:
            reader, writer = await door.connect()
            for n in range(len(LAST)):
                writer.write(LAST[n : n + 1])
                await writer.drain()
            assert RawReply(await until_closed(reader)).json == {"status": "alive"}
            writer.close()


class TestBodies:
    @pytest.mark.parametrize(
        ("length", "drop"),
        [(b"Content-Length: 1000", b" "), (b"Transfer-Encoding: chunked", b"1\r\n \r\n")],
        ids=["declared", "chunked"],
    )
    async def test_a_body_that_drips_is_408(
        self, door: RunningServer, herd: Herd, length: bytes, drop: bytes
    ) -> None:
        reply = await drip(door, POST + length + b"\r\n\r\n", drop)
        assert (reply.status, reply.json["code"]) == (408, "REQUEST_TIMEOUT")
        assert b"connection: close" in reply.head
        assert herd.rows(herd.tables.instance) == []

    async def test_a_body_that_drips_is_408_where_a_repeat_would_be_known(self, door: RunningServer) -> None:
        sync = POST.replace(b"/api/instances", b"/api/sync")
        first = sync + b"Idempotency-Key: k\r\nContent-Length: 1000\r\n\r\n"
        assert (await drip(door, first, b" ")).status == 408

    async def test_the_rest_of_a_body_that_nobody_wanted_may_not_drip_either(
        self, door: RunningServer
    ) -> None:
        reply = await drip(door, b"POST /api/sync HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", b"x")
        assert reply.status == 401

    async def test_the_rest_of_a_body_that_nobody_wanted_is_not_read_for_ever(self, plane: Plane) -> None:
        async with running_server(plane, replace(LONG, head_s=3600, unread_bytes=100_000)) as door:
            head = b"POST /api/sync HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n"
            assert (await drip(door, head, b"x" * 10_000)).status == 401


class TestReaders:
    async def test_a_reply_that_nobody_reads_does_not_keep_the_connection(self, plane: Plane) -> None:
        async with running_server(plane, SHORT) as door:
            _, writer = await door.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            asked = POST.replace(b"POST /api/instances", b"GET /openapi.json") + b"\r\n"
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(10):
                    writer.write(asked * 300)
                    while door.server.server_state.connections:
                        await asyncio.sleep(0.02)
            assert not door.server.server_state.connections
            writer.close()


class TestCrowds:
    async def test_a_hundred_slow_clients_keep_nobody_from_being_answered(self, plane: Plane) -> None:
        async with running_server(plane, LONG) as door, asyncio.TaskGroup() as crowd:
            slow = [
                crowd.create_task(drip(door, *how))
                for how in [(HEAD, b"X: 1\r\n"), (POST + b"Content-Length: 999\r\n\r\n", b" ")] * 50
            ]
            while len(door.server.server_state.connections) < len(slow):
                await asyncio.sleep(0.01)
            for _ in range(20):
                assert (await door.send(LAST)).json == {"status": "alive"}
            assert not any(it.done() for it in slow)
            for connection in list(door.server.server_state.connections):
                connection.transport.abort()

    async def test_one_too_many_is_told_so_and_served_when_others_have_left(self, plane: Plane) -> None:
        async with running_server(plane, replace(LONG, connections=3)) as door:
            others = [await door.connect() for _ in range(3)]
            while len(door.server.server_state.connections) < 3:
                await asyncio.sleep(0.01)
            refused = await door.send(LAST)
            assert (refused.status, refused.json["code"]) == (503, "OVERLOADED")
            assert b"retry-after: 1" in refused.head
            for _, writer in others:
                writer.close()
            while door.server.server_state.connections:
                await asyncio.sleep(0.01)
            assert (await door.send(LAST)).status == 200

    async def test_far_too_many_are_not_even_listened_to(self, plane: Plane) -> None:
        async with running_server(plane, replace(LONG, connections=1, spare_connections=0)) as door:
            _, writer = await door.connect()
            while not door.server.server_state.connections:
                await asyncio.sleep(0.01)
            assert (await door.send(b"")).raw == b""
            writer.close()


class Files:
    """How many files a process may have open, as an operating system would have it."""

    RLIMIT_NOFILE, RLIM_INFINITY = resource.RLIMIT_NOFILE, resource.RLIM_INFINITY

    def __init__(self, soft: int, hard: int, *, strict: bool = False):
        self.limits = (soft, hard)
        self._strict = strict

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.limits

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
        if self._strict:
            raise ValueError("not allowed")
        self.limits = limits


@pytest.mark.parametrize(
    ("files", "connections", "soft"),
    [
        (Files(20_000, 20_000), 2000, 20_000),
        (Files(1024, 1_000_000), 2000, 2600),
        (Files(1024, Files.RLIM_INFINITY), 2000, 2600),
        (Files(Files.RLIM_INFINITY, Files.RLIM_INFINITY), 2000, Files.RLIM_INFINITY),
        (Files(1024, 1024), 424, 1024),
        (Files(1024, 4096, strict=True), 424, 1024),
        (Files(256, 256), 64, 256),
    ],
    ids=["enough", "raised", "no bound", "no limit", "full", "not allowed", "few"],
)
def test_clients_may_not_take_the_last_file_of_the_process(
    monkeypatch: pytest.MonkeyPatch, files: Files, connections: int, soft: int
) -> None:
    monkeypatch.setattr(http_server, "resource", files)
    assert http_server.fit_to_file_limit(ConnectionLimits()).connections == connections
    assert files.limits[0] == soft
