"""What the other side may answer, and how little of it gets in."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from gpuherd.adapters.egress.guarded_client import SsrfSafeClient
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.ports.egress_port import EgressFailure, FailureCategory
from tests.adapters.egress.conftest import ClientMaker
from tests.adapters.egress.doubles import OK, TLS, Answer, Receiver, StubResolver, get
from tests.support.fake_clock import FakeClock


@pytest.fixture
def make_client(make_client: ClientMaker) -> ClientMaker:
    return partial(make_client, tls=TLS)


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def repeated(head: bytes, chunk: bytes, pause_s: float = 0.0) -> Answer:
    """Return an answer that never ends."""

    async def go_on(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return go_on


async def test_a_reply_comes_back_whole(make_client: ClientMaker) -> None:
    reply_bytes = answer("201 Created", "X-Thing: One", "x-thing: Two", "ETag: abc", body=b"hello")
    async with Receiver(reply_bytes) as receiver:
        reply = await get(make_client(), receiver.url)
    assert (reply.status, reply.body, reply.truncated) == (201, b"hello", False)
    assert reply.headers["x-thing"] == "One, Two"
    assert reply.headers["etag"] == "abc"
    assert reply.address == "127.0.0.1"


async def test_the_body_goes_out_byte_by_byte_as_given(make_client: ClientMaker) -> None:
    body = bytes(range(256)) * 300
    async with Receiver() as receiver:
        await make_client().request(
            "POST", receiver.url, headers={"x-a": "b"}, body=body, timeout_s=5, max_bytes=10
        )
    head, _, sent = receiver.requests[0].partition(b"\r\n\r\n")
    assert sent == body
    assert b"x-a: b" in head


async def test_nothing_is_sent_that_was_not_asked_for(make_client: ClientMaker) -> None:
    resolver = StubResolver({"hook.example.com": [["127.0.0.1"]]})
    async with Receiver() as receiver:
        await get(make_client(resolver=resolver), f"http://hook.example.com:{receiver.port}/a%2Fb?c=%20d#e")
    lines = receiver.requests[0].decode().lower().split("\r\n")
    assert lines[0] == "get /a%2fb?c=%20d http/1.1"
    assert {line for line in lines[1:] if line} == {
        f"host: hook.example.com:{receiver.port}",
        "accept-encoding: identity",
        "connection: close",
    }


async def test_a_redirect_is_reported_and_not_followed(
    make_client: ClientMaker, subtests: pytest.Subtests
) -> None:
    for status, method in product([301, 302, 303, 307, 308], ["GET", "POST"]):
        with subtests.test(status=status, method=method):
            async with Receiver() as inner:
                redirect = answer(f"{status} Moved", f"location: {inner.url}")
                async with Receiver(redirect) as receiver:
                    reply = await get(make_client(), receiver.url, method=method)
                assert reply.status == status
                assert (receiver.connections, inner.connections) == (1, 0)


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/", "file:///etc/passwd", "//127.0.0.1:1/", "\\\\x", ""]
)
async def test_an_evil_location_is_only_a_header(location: str, make_client: ClientMaker) -> None:
    async with Receiver(answer("302 Found", f"location: {location}")) as receiver:
        reply = await get(make_client(), receiver.url)
    assert (reply.status, reply.headers["location"]) == (302, location)


ENDLESS_CHUNKED = repeated(
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"
)
ENDLESS_PLAIN = repeated(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)


@pytest.mark.parametrize("endless", [ENDLESS_CHUNKED, ENDLESS_PLAIN])
async def test_an_endless_reply_is_cut_at_the_cap(endless: Answer, make_client: ClientMaker) -> None:
    async with Receiver(endless) as receiver:
        reply = await get(make_client(), receiver.url, max_bytes=100_000)
    assert (len(reply.body), reply.truncated) == (100_000, True)


@pytest.mark.parametrize(("size", "truncated"), [(0, False), (9, False), (10, False), (11, True)])
async def test_truncated_means_that_there_was_more(
    size: int, truncated: bool, make_client: ClientMaker
) -> None:
    async with Receiver(answer("200 OK", body=b"x" * size)) as receiver:
        reply = await get(make_client(), receiver.url, max_bytes=10)
    assert (len(reply.body), reply.truncated) == (min(size, 10), truncated)


async def test_a_compressed_bomb_stays_packed(make_client: ClientMaker) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    async with Receiver(answer("200 OK", "content-encoding: gzip", body=bomb)) as receiver:
        reply = await get(make_client(), receiver.url, max_bytes=50_000)
    assert reply.body == bomb


TRICKLED_HEADERS = repeated(b"HTTP/1.1 200 OK\r\n", b"x", pause_s=0.01)
TRICKLED_BODY = repeated(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", b"x", pause_s=0.01)
FLOOD_OF_1XX = repeated(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50)


async def silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("slow", [silence, TRICKLED_HEADERS, TRICKLED_BODY, FLOOD_OF_1XX])
async def test_the_deadline_covers_the_whole_exchange(slow: Answer, make_client: ClientMaker) -> None:
    async with Receiver(slow) as receiver:
        # The outer limit only ends the test, should the door's own fail.
        with pytest.raises(EgressFailure) as caught:
            async with asyncio.timeout(5):
                await get(make_client(), receiver.url, timeout_s=0.3)
    assert caught.value.category is FailureCategory.TIMEOUT


async def test_the_deadline_covers_the_name_lookup(make_client: ClientMaker) -> None:
    class StuckResolver:
        async def resolve(self, host: str) -> list[str]:
            await asyncio.sleep(60)
            return []

    client = make_client(resolver=StuckResolver())
    for attempt in (
        get(client, "http://a.example.com/", timeout_s=0.05),
        client.connect("a.example.com", 80, 0.05),
    ):
        with pytest.raises(EgressFailure) as caught:
            await attempt
        assert caught.value.category is FailureCategory.TIMEOUT


BROKEN = {
    "HTTP/0.9": b"<html>hello</html>",
    "binary": b"\x16\x03\x01\x02\x00\x01\x00" * 20,
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "100 kB header": answer("200 OK", "x-big: " + "a" * 100_000),
    "10,000 headers": answer("200 OK", *(f"x-{n}: {n}" for n in range(10_000))),
    "bad status": b"HTTP/1.1 2e2 OK\r\n\r\n",
    "bad chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nokk",
    "NUL in a header": b"HTTP/1.1 200 OK\r\nx: a\x00b\r\ncontent-length: 0\r\n\r\n",
}


async def test_what_is_not_http_is_a_protocol_failure(
    make_client: ClientMaker, subtests: pytest.Subtests
) -> None:
    for kind in list(BROKEN):
        with subtests.test(kind=kind):
            async with Receiver(BROKEN[kind]) as receiver:
                with pytest.raises(EgressFailure) as caught:
                    await get(make_client(), receiver.url)
            assert caught.value.category is FailureCategory.PROTOCOL


async def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


CUT_SHORT: dict[str, bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]] = {
    "no bytes": b"",
    "half a header": b"HTTP/1.1 200 OK\r\ncontent-le",
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
    "half a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\nhalf",
    "a reset": reset,
}


async def test_a_reply_cut_short_is_a_reset_and_is_not_asked_for_again(
    make_client: ClientMaker, subtests: pytest.Subtests
) -> None:
    for kind, method in product(list(CUT_SHORT), ["GET", "POST"]):
        with subtests.test(kind=kind, method=method):
            async with Receiver(CUT_SHORT[kind]) as receiver:
                with pytest.raises(EgressFailure) as caught:
                    await get(make_client(), receiver.url, method=method)
            assert caught.value.category is FailureCategory.RESET
            assert receiver.connections == 1


async def test_a_closed_port_is_a_refusal(make_client: ClientMaker) -> None:
    async with Receiver() as receiver:
        port = receiver.port
    client = make_client()
    for attempt in (get(client, f"http://127.0.0.1:{port}/"), client.connect("127.0.0.1", port, 5.0)):
        with pytest.raises(EgressFailure) as caught:
            await attempt
        assert caught.value.category is FailureCategory.REFUSED


async def test_proxies_and_logins_of_the_environment_are_ignored(
    make_client: ClientMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password hunter2\n")
    async with Receiver() as proxy, Receiver() as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NETRC", str(netrc))
        assert (await get(make_client(), receiver.url)).status == 200
        assert (proxy.connections, receiver.connections) == (0, 1)
        assert b"authorization" not in receiver.requests[0].lower()


async def test_cookies_are_not_kept(make_client: ClientMaker) -> None:
    resolver = StubResolver({"hook.example.com": [["127.0.0.1"]]})
    async with Receiver(answer("200 OK", "set-cookie: track=1; path=/")) as receiver:
        client = make_client(resolver=resolver)
        for _ in range(2):
            await get(client, f"http://hook.example.com:{receiver.port}/")
    assert b"cookie" not in receiver.requests[1].lower()


@pytest.mark.parametrize("value", ["a\r\nx-injected: 1", "a\nb", "a\0b"])
async def test_a_header_cannot_smuggle_another(value: str, make_client: ClientMaker) -> None:
    async with Receiver() as receiver:
        with pytest.raises(EgressFailure) as caught:
            await make_client().request(
                "GET", receiver.url, headers={"x-a": value}, body=None, timeout_s=5, max_bytes=1
            )
    assert caught.value.category is FailureCategory.PROTOCOL
    assert receiver.requests == []


async def test_header_bytes_that_are_no_text_become_text(make_client: ClientMaker) -> None:
    async with Receiver(b"HTTP/1.1 200 OK\r\nx-odd: \xff\xfe\r\ncontent-length: 0\r\n\r\n") as receiver:
        reply = await get(make_client(), receiver.url)
    assert reply.headers["x-odd"].encode()


async def test_failures_name_neither_url_nor_body(make_client: ClientMaker) -> None:
    async with Receiver(b"garbage hunter2") as receiver:
        with pytest.raises(EgressFailure) as caught:
            await get(make_client(), f"{receiver.url}hunter2?token=hunter2")
    error = caught.value
    assert "hunter2" not in f"{error} {error!r} {error.detail} {error.__cause__!r}"
    assert error.__suppress_context__


async def test_the_tcp_door_tells_how_long_it_took() -> None:
    clock = FakeClock()

    class SlowResolver:
        async def resolve(self, host: str) -> list[str]:
            await clock.advance(0.25)
            return ["127.0.0.1"]

    async with Receiver() as receiver:
        client = SsrfSafeClient(EgressPolicy.parse("127.0.0.0/8"), SlowResolver(), clock)
        assert await client.connect("a.example.com", receiver.port, 5.0) == pytest.approx(0.25)
        assert receiver.requests == []
        reply = await get(client, f"http://a.example.com:{receiver.port}/")
        assert reply.elapsed_s == pytest.approx(0.25)
        await client.close()


async def test_a_cancelled_request_lets_go_of_its_connection(make_client: ClientMaker) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait_for_the_end(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n")
        begun.set()
        while not writer.transport.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.01)
        ended.set()

    async with Receiver(wait_for_the_end) as receiver:
        task = asyncio.create_task(get(make_client(), receiver.url))
        await asyncio.wait_for(begun.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 5)


async def test_a_closed_door_opens_again(make_client: ClientMaker) -> None:
    client = make_client()
    async with Receiver(OK) as receiver:
        for _ in range(2):
            assert (await get(client, receiver.url)).status == 200
            await client.close()
