"""What the adapter makes of replies that are slow, endless, cut, reset or not there, on real sockets."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json

import pytest

from gpuherd.adapters.novita.novita_call import (
    CONNECTIONS,
    Exchange,
    NoReply,
    NotSent,
)
from gpuherd.domain.errors import CloudTimeout, CloudUnavailable, OutcomeUnknown
from gpuherd.domain.secret import Secret
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from tests.adapters.novita.builders import KEY, ORDER, open_cloud, open_transport
from tests.adapters.novita.raw_server import Request, free_port, http, raw_server, reset, saying
from tests.support.fake_clock import FakeClock

CREATED = {"id": "5f0c9b1d2e3a4f60"}


async def _drip(_: Request, writer: asyncio.StreamWriter) -> None:
    for byte in itertools.chain(http(200, CREATED)[:-1], itertools.repeat(0x20)):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.02)


async def _endless(_: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def _silent(_: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def _cut(_: Request, writer: asyncio.StreamWriter) -> None:
    reset(writer)


@pytest.mark.proves("F11")
@pytest.mark.parametrize("answer", [_drip, _silent], ids=["a byte now and then", "no answer"])
async def test_a_create_that_takes_too_long_has_an_unknown_outcome(answer):
    async with raw_server(answer) as server, open_cloud(server.base_url, request_timeout_s=0.5) as cloud:
        with pytest.raises(OutcomeUnknown):
            await cloud.create_machine(ORDER)
    assert len(server.requests) == 1


async def test_a_read_that_takes_too_long_is_a_timeout():
    async with (
        raw_server(_drip) as server,
        open_transport(server.base_url, request_timeout_s=0.3) as transport,
    ):
        with pytest.raises(CloudTimeout):
            await transport.read("/clusters")


@pytest.mark.proves("F11")
@pytest.mark.parametrize(
    "answer",
    [_endless, saying(http(200, b'{"id": "' + b"x" * 20_000 + b'"}'))],
    ids=["endless", "huge"],
)
async def test_a_reply_without_measure_is_cut_off(answer):
    async with raw_server(answer) as server, open_cloud(server.base_url, max_bytes=10_000) as cloud:
        with pytest.raises(OutcomeUnknown, match="too long"):
            await cloud.create_machine(ORDER)
        with pytest.raises(CloudUnavailable, match="too long"):
            await cloud.list_machines()


async def test_a_reply_of_exactly_the_permitted_length_is_read():
    body = {"data": [], "pad": "x" * 500}
    limit = len(json.dumps(body))
    async with (
        raw_server(saying(http(200, body))) as server,
        open_transport(server.base_url, max_bytes=limit) as transport,
    ):
        assert await transport.read("/products") == body


PLAIN = http(200, CREATED)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'8\r\n{"id": "\r\n10\r\n5f0c9b1d2e3a4f60\r\n2\r\n"}\r\n0\r\n\r\n'
)
UNTIL_THE_END = b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"id": "5f0c9b1d2e3a4f60"}'


@pytest.mark.proves("F12")
@pytest.mark.parametrize("reply", [PLAIN, CHUNKED, UNTIL_THE_END], ids=["plain", "chunked", "until the end"])
@pytest.mark.parametrize("with_reset", [False, True], ids=["end", "reset"])
async def test_a_create_reply_cut_anywhere_is_unknown_and_never_sent_again(reply, with_reset):
    length = 0

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(reply[:length])
        await writer.drain()
        if with_reset:
            await asyncio.sleep(0)
            reset(writer)
        else:
            writer.close()

    breaker = CircuitBreaker(FakeClock(), threshold=len(reply) + 1)
    async with raw_server(answer) as server, open_cloud(server.base_url, breaker=breaker) as cloud:
        for length in range(len(reply)):
            with pytest.raises(OutcomeUnknown):
                await cloud.create_machine(ORDER)
            assert len(server.requests) == length + 1


@pytest.mark.parametrize("reply", [PLAIN, CHUNKED, UNTIL_THE_END], ids=["plain", "chunked", "until the end"])
async def test_a_whole_create_reply_gives_the_id(reply):
    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        writer.close()

    async with raw_server(answer) as server, open_cloud(server.base_url) as cloud:
        assert await cloud.create_machine(ORDER) == CREATED["id"]


async def test_a_refused_port_means_that_surely_nothing_happened():
    async with open_cloud(f"http://127.0.0.1:{await free_port()}") as cloud:
        with pytest.raises(CloudUnavailable):
            await cloud.create_machine(ORDER)
        with pytest.raises(CloudUnavailable):
            await cloud.list_machines()


async def test_a_handshake_that_fails_means_that_surely_nothing_happened():
    async def talk_nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"this is not TLS\r\n")
        writer.close()

    server = await asyncio.start_server(talk_nonsense, "127.0.0.1", 0)
    async with open_cloud(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}") as cloud:
        with pytest.raises(CloudUnavailable, match="connection"):
            await cloud.create_machine(ORDER)
    server.close()


async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(tls_server):
    async with open_cloud(tls_server) as cloud:
        with pytest.raises(CloudUnavailable, match="certificate"):
            await cloud.create_machine(ORDER)


@pytest.mark.proves("F12")
async def test_a_reset_after_the_request_has_an_unknown_outcome_for_every_change():
    async with raw_server(_cut) as server, open_cloud(server.base_url) as cloud:
        for change in (cloud.start_machine, cloud.stop_machine, cloud.restart_machine, cloud.delete_machine):
            with pytest.raises(OutcomeUnknown):
                await change("5f0c9b1d2e3a4f60")
        with pytest.raises(OutcomeUnknown):
            await cloud.create_machine(ORDER)
    assert len(server.requests) == 5


async def test_waiting_for_a_free_connection_is_not_sending():
    all_busy = asyncio.Event()

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) == CONNECTIONS:
            all_busy.set()
        await asyncio.sleep(3600)

    async with raw_server(answer) as server:
        exchange = Exchange(server.base_url, Secret(KEY), clock=FakeClock(), max_bytes=1000)
        busy = [asyncio.create_task(exchange.post("/x", {}, 60)) for _ in range(CONNECTIONS)]
        try:
            await all_busy.wait()
            with pytest.raises(NotSent):
                await exchange.post("/x", {}, 0.1)
            assert len(server.requests) == CONNECTIONS
        finally:
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            await exchange.close()


@pytest.mark.proves("F12")
async def test_a_kept_connection_that_dies_costs_a_read_one_repeat_and_a_change_nothing():
    """The server answers once per connection and drops the next request on it unread."""
    served: set[int] = set()

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        if id(writer) in served:
            reset(writer)
            return
        served.add(id(writer))
        writers.append(writer)
        writer.write(http(200, {"id": "a", "data": []}))

    writers: list[asyncio.StreamWriter] = []  # kept, so that ids are not given out again
    clock = FakeClock()
    async with raw_server(answer) as server, open_transport(server.base_url, clock=clock) as transport:
        await transport.read("/clusters")
        # By hand: a clock that stands still proves that the repeat did not wait.
        assert await transport.read("/clusters") == {"id": "a", "data": []}
        assert len(server.requests) == 3
        await transport.change("/gpu/instance/create", {})
        assert [request.method for request in server.requests].count("POST") == 1
        assert transport._breaker.snapshot().failures == 0


async def test_a_repeat_does_not_try_the_next_dead_connection():
    waiting: list[asyncio.StreamWriter] = []

    async def answer(_: Request, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) <= 4:
            # All four at once, so that four connections are kept.
            waiting.append(writer)
            if len(waiting) == 4:
                for each in waiting:
                    each.write(http(200, {"data": []}))
        elif writer in waiting:
            reset(writer)
        else:
            writer.write(http(200, {"data": ["fresh"]}))

    clock = FakeClock()
    async with raw_server(answer) as server, open_transport(server.base_url, clock=clock) as transport:
        await asyncio.gather(*(transport.read("/products") for _ in range(4)))
        assert await transport.read("/products") == {"data": ["fresh"]}
        assert len(server.requests) == 6


async def test_reads_share_a_connection():
    answer = saying(http(200, {"data": []}))
    async with raw_server(answer) as server, open_transport(server.base_url) as transport:
        for _ in range(5):
            await transport.read("/products")
    assert server.connections == 1


async def test_nothing_is_ever_written_twice_by_the_library_below():
    """aiohttp repeats a GET by itself when the connection breaks; our three tries must stay three."""
    async with raw_server(_cut) as server, open_transport(server.base_url) as transport:
        with pytest.raises(CloudUnavailable):
            await transport.read("/clusters")
    assert len(server.requests) == 3


async def test_redirects_are_not_followed():
    async with raw_server(saying(http(200, CREATED))) as elsewhere:
        reply = http(307, b"", f"Location: {elsewhere.base_url}/gpu-instance/openapi/v1/gpu/instance/create")
        async with raw_server(saying(reply)) as server, open_cloud(server.base_url) as cloud:
            with pytest.raises(OutcomeUnknown):
                await cloud.create_machine(ORDER)
            with pytest.raises(CloudUnavailable):
                await cloud.list_machines()
    assert elsewhere.connections == 0


async def test_cookies_are_not_kept():
    reply = http(200, {"data": []}, "Set-Cookie: track=me; Path=/")
    # By name: cookies of bare addresses are dropped anyway.
    async with (
        raw_server(saying(reply)) as server,
        open_transport(server.base_url.replace("127.0.0.1", "localhost")) as transport,
    ):
        await transport.read("/products")
        await transport.read("/products")
    assert len(server.requests) == 2
    assert all("cookie" not in request.headers for request in server.requests)


async def test_the_key_goes_into_one_header_and_proxies_of_the_environment_are_ignored(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    answer = saying(http(200, {"data": []}))
    async with raw_server(answer) as server, open_transport(server.base_url) as transport:
        await transport.read("/products", {"billingMethod": "spot"})
    (request,) = server.requests
    assert request.headers.pop("authorization") == f"Bearer {KEY}"
    assert KEY not in str(request)
    assert request.headers["accept-encoding"] == "identity"
    assert request.target == "/gpu-instance/openapi/v1/products?billingMethod=spot"


async def test_a_reply_that_is_packed_all_the_same_is_garbage_and_not_unpacked():
    packed = gzip.compress(json.dumps(CREATED).encode())
    reply = http(200, packed, "Content-Encoding: gzip", "Content-Type: application/json")
    async with raw_server(saying(reply)) as server, open_cloud(server.base_url) as cloud:
        with pytest.raises(OutcomeUnknown):
            await cloud.create_machine(ORDER)


@pytest.mark.parametrize(
    "reply",
    [b"garbage\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n"],
    ids=["no HTTP", "no status", "endless header"],
)
async def test_a_reply_that_is_not_http_proves_nothing(reply):
    async with raw_server(saying(reply)) as server, open_cloud(server.base_url) as cloud:
        with pytest.raises(OutcomeUnknown) as caught:
            await cloud.create_machine(ORDER)
    assert _chain_is_clean(caught.value)


async def test_no_error_of_the_library_below_hangs_on_ours():
    """Some of them carry our headers, and a logger that walks the chain would write them down."""
    async with raw_server(saying(b"HTTP/1.1 abc\r\n\r\n")) as server:
        exchange = Exchange(server.base_url, Secret(KEY), clock=FakeClock(), max_bytes=1000)
        with pytest.raises(NoReply) as caught:
            await exchange.post("/x", {}, 5)
        await exchange.close()
    assert caught.value.__context__ is None


def _chain_is_clean(error: BaseException | None) -> bool:
    while error is not None:
        if KEY in repr(error) or KEY in str(error):
            return False
        error = error.__cause__ or error.__context__
    return True


async def test_the_key_is_in_no_error_not_even_when_the_other_side_quotes_it():
    quoting = {"code": 400, "reason": "REQUEST", "message": f"bad request, Authorization: Bearer {KEY}"}
    answers = [saying(http(400, quoting)), saying(http(502, f"<pre>{KEY}</pre>".encode())), _cut]
    for answer in answers:
        async with raw_server(answer) as server, open_cloud(server.base_url) as cloud:
            for call in (cloud.create_machine(ORDER), cloud.list_machines(), cloud.delete_machine("x")):
                with pytest.raises(Exception) as caught:
                    await call
                assert _chain_is_clean(caught.value)
                assert KEY not in str(vars(caught.value))
            assert KEY not in repr(cloud) + repr(vars(cloud._transport._exchange))


@pytest.mark.parametrize("key", ["", "sk_a b", "sk_a\r\nX-Evil: 1", "sk_ü"])
def test_a_key_that_cannot_be_a_key_is_refused_without_being_shown(key):
    with pytest.raises(ValueError, match="API key") as caught:
        Exchange("http://127.0.0.1", Secret(key), clock=FakeClock(), max_bytes=1)
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x", "api.novita.ai", "http://", "http://me:pw@x", "http://x/?a=b"])
def test_a_base_url_must_be_a_plain_host(url):
    with pytest.raises(ValueError, match="base URL"):
        Exchange(url, Secret(KEY), clock=FakeClock(), max_bytes=1)


async def test_an_unexpected_error_after_writing_is_a_lost_reply_and_before_it_our_own_mistake():
    async with raw_server(saying(http(200, CREATED))) as server:
        exchange = Exchange(server.base_url, Secret(KEY), clock=_BrokenClock(), max_bytes=1000)
        with pytest.raises(NoReply):
            await exchange.post("/x", {}, 5)
        await exchange.close()
        with pytest.raises(RuntimeError, match="closed"):
            await exchange.post("/x", {}, 5)


class _BrokenClock(FakeClock):
    def now(self):
        raise KeyError("time")
