"""The two ways to carry a request, on real sockets of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gpuherd import __version__
from gpuherd.client import ConnectionFailed
from gpuherd.client.address import Address, find_server
from gpuherd.client.clock import SystemClock
from gpuherd.client.transport.async_transport import AiohttpTransport
from gpuherd.client.transport.sync_transport import HttpTransport
from gpuherd.client.transport.wire import Reply, Request

KEY = "ghk_canary_key_on_the_wire"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Wait-Timed-Out: true\r\n\r\n{}"
Send = Callable[[Request], Awaitable[Reply]]


class RawServer:
    """Answers each request with the next bytes; b"" closes the connection without a word."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.closes = False
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                self.requests.append(head + body)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                writer.write(answer)
                await writer.drain()
                if not answer or self.closes:
                    break
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    it = RawServer(OK)
    listening = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.port = listening.sockets[0].getsockname()[1]
    yield it
    listening.close()


@contextlib.asynccontextmanager
async def opened(kind: str, address: Address) -> AsyncIterator[Send]:
    if kind == "sync":
        transport = HttpTransport(address, SystemClock())
        yield lambda request: asyncio.to_thread(transport.send, request)
        transport.close()
    else:
        async_transport = AiohttpTransport(address)
        yield async_transport.send
        await async_transport.close()


@pytest.fixture(params=["sync", "async"])
async def send(request: pytest.FixtureRequest, server: RawServer) -> AsyncIterator[Send]:
    address = find_server(f"http://127.0.0.1:{server.port}/below", KEY, {})
    async with opened(request.param, address) as it:
        yield it


def ask(timeout_s: float = 20.0, **more: Any) -> Request:
    return Request("GET", "/api/x%2E%2F", (("a", "b c"),), timeout_s=timeout_s, **more)


async def test_a_request_arrives_as_it_was_meant(send: Send, server: RawServer) -> None:
    reply = await send(ask())
    assert (reply.status, reply.content, reply.headers["x-wait-timed-out"]) == (200, b"{}", "true")
    head = server.requests[0].decode()
    assert head.startswith("GET /below/api/x%2E%2F?a=b+c HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}\r\n" in head
    assert f"User-Agent: gpuherd-python/{__version__}\r\n" in head
    await send(Request("POST", "/p", body={"a": "ü"}, idempotency_key="k-1", timeout_s=20.0))
    posted = server.requests[1].decode()
    assert "Idempotency-Key: k-1\r\n" in posted and posted.endswith('{"a": "\\u00fc"}')
    assert "Content-Type: application/json\r\n" in posted


async def test_a_connection_is_used_again(send: Send, server: RawServer) -> None:
    for _ in range(3):
        await send(ask())
    assert server.connections == 1


async def test_a_connection_that_was_closed_meanwhile_is_not(send: Send, server: RawServer) -> None:
    server.closes = True
    await send(ask())
    async with asyncio.timeout(20):
        while server.connections < 2:
            with contextlib.suppress(ConnectionFailed):
                await send(ask())
    assert len(server.requests) >= 2


async def test_proxies_of_the_environment_are_ignored(
    send: Send, server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert (await send(ask())).status == 200
    assert len(server.requests) == 1


async def test_redirects_are_not_followed(send: Send, server: RawServer) -> None:
    server.answers = [b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"]
    assert (await send(ask())).status == 302
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"what?\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\nConnection: close\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
async def test_a_broken_answer_may_mean_that_it_was_obeyed(
    send: Send, server: RawServer, answer: bytes
) -> None:
    server.answers, server.closes = [answer], True
    with pytest.raises(ConnectionFailed) as caught:
        await send(ask())
    assert caught.value.sent
    shown = repr(caught.value) + str(caught.value) + repr(caught.value.__cause__)
    assert KEY not in shown and "may have been obeyed" in shown


async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(send: Send, server: RawServer) -> None:
    server.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"]
    with pytest.raises(ConnectionFailed, match="no answer in time") as caught:
        await send(ask(timeout_s=0.2))
    assert caught.value.sent


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_nobody_there_means_that_nothing_was_sent(kind: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with opened(kind, find_server(f"http://127.0.0.1:{port}", KEY, {})) as send:
        with pytest.raises(ConnectionFailed, match="gpuherd serve") as caught:
            await send(ask())
    assert not caught.value.sent
    assert "refused" in str(caught.value)


async def test_threads_may_share_it(server: RawServer) -> None:
    transport = HttpTransport(find_server(f"http://127.0.0.1:{server.port}", KEY, {}), SystemClock())
    statuses: list[int] = []

    def work() -> None:
        for _ in range(5):
            statuses.append(transport.send(ask()).status)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        await asyncio.sleep(0.01)
    transport.close()
    assert statuses == [200] * 40
    assert server.connections <= 8


async def test_an_interrupted_answer_is_not_taken_for_the_next_one(server: RawServer) -> None:
    class Interrupting(SystemClock):
        looks = 0

        def monotonic(self) -> float:
            # The third look at the clock is in the middle of the first answer.
            self.looks += 1
            if self.looks == 3:
                raise KeyboardInterrupt
            return super().monotonic()

    transport = HttpTransport(find_server(f"http://127.0.0.1:{server.port}", KEY, {}), Interrupting())
    server.answers = [OK.replace(b"{}", b"[]"), OK]

    def work() -> Reply:
        with pytest.raises(KeyboardInterrupt):
            transport.send(ask())
        return transport.send(ask())

    assert (await asyncio.to_thread(work)).content == b"{}"
    transport.close()
    assert server.connections == 2
