"""Replies that do not end: judged like all others, read no faster than they are passed on, and let go of."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.ports.egress_port import EgressFailure, FailureCategory
from tests.adapters.egress.conftest import ClientMaker
from tests.adapters.egress.doubles import TLS, Receiver, StubResolver

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
def make_client(make_client: ClientMaker) -> ClientMaker:
    return partial(make_client, tls=TLS)


class Log(Receiver):
    """Says what it is told to say, for as long as somebody listens."""

    def __init__(self) -> None:
        super().__init__(self._talk)
        self.said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.written = 0
        self.left = asyncio.Event()

    async def _talk(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        try:
            while (chunk := await self.said.get()) is not None:
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
                self.written += len(chunk)
            writer.transport.abort()
        except OSError:
            self.left.set()


async def test_bytes_come_as_they_are_written_and_a_given_up_read_loses_none(
    make_client: ClientMaker,
) -> None:
    async with Log() as log, make_client().stream(log.url, headers={}, timeout_s=5) as stream:
        assert stream.status == 200
        for n in range(20):
            # Given up at all kinds of moments.
            waiting = asyncio.create_task(stream.read())
            log.said.put_nowait(b"line %d\n" % n)
            for _ in range(n % 4):
                await asyncio.sleep(0)
            waiting.cancel()
            got = b"".join(
                it for it in await asyncio.gather(waiting, return_exceptions=True) if isinstance(it, bytes)
            )
            assert (got or await stream.read()) == b"line %d\n" % n


async def test_who_does_not_read_holds_the_other_side_up(make_client: ClientMaker) -> None:
    async with Log() as log, make_client().stream(log.url, headers={}, timeout_s=5) as stream:
        chunk = b"x" * 2**20
        for _ in range(64):
            log.said.put_nowait(chunk)
        await stream.read()
        before = -1
        while log.written != before:
            before = log.written
            await asyncio.sleep(0.1)
        # What the sockets of both sides hold, and no more.
        assert log.written < 32 * len(chunk)


async def test_a_stream_that_breaks_off_is_no_end(make_client: ClientMaker) -> None:
    async with Log() as log, make_client().stream(log.url, headers={}, timeout_s=5) as stream:
        log.said.put_nowait(b"half a lin")
        assert await stream.read() == b"half a lin"
        log.said.put_nowait(None)
        with pytest.raises(EgressFailure) as caught:
            await stream.read()
    assert caught.value.category is FailureCategory.RESET and log.url not in str(caught.value)


async def test_the_other_side_is_let_go_when_the_reader_leaves(make_client: ClientMaker) -> None:
    async with Log() as log:
        async with make_client().stream(log.url, headers={}, timeout_s=5):
            pass
        async with asyncio.timeout(10):
            while not log.left.is_set():
                log.said.put_nowait(b"x" * 2**16)
                await asyncio.sleep(0.01)


async def test_a_private_address_is_refused_by_literal_and_by_name(make_client: ClientMaker) -> None:
    resolver = StubResolver({"logs.example.com": [["127.0.0.1"]]})
    client = make_client(EgressPolicy(), resolver)
    async with Log() as log:
        for url in (log.url, f"http://logs.example.com:{log.port}/system?token=t0ken"):
            with pytest.raises(EgressFailure) as caught:
                async with client.stream(url, headers={}, timeout_s=5):
                    raise AssertionError("it was opened")
            assert caught.value.category is FailureCategory.BLOCKED_TARGET
            assert "t0ken" not in str(caught.value)
        assert log.connections == 0


async def test_a_redirect_is_reported_and_not_followed(make_client: ClientMaker) -> None:
    async with Log() as inner:
        redirect = f"HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: {inner.url}\r\n\r\n".encode()
        async with (
            Receiver(redirect) as outer,
            make_client().stream(outer.url, headers={}, timeout_s=5) as it,
        ):
            assert it.status == 302
        assert inner.connections == 0
