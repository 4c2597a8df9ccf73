"""Both clients over real sockets: what they send, what they repeat, and what a bad network does to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from gpuherd import __version__
from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import (
    Conflict,
    ConnectionFailed,
    GpuherdError,
    SecretLost,
    TooManyRequests,
    Unavailable,
    UnexpectedReply,
)
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.lease_models import HealthCheckBody
from tests.client.support.server import AnyClient, InstantClock, accepted, details, problem

KEY = "ghk_canary_key_on_the_wire"
# The server closes the connection without an answer.
LOST = b""
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"


def reply(body: Any, status: int = 200, **headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", *lines, "", ""])
    return head.encode() + content


def refusal(status: int, code: str, **more: Any) -> bytes:
    return reply(problem(status, code, **more).body, status)


class RawServer:
    """Answers each request with the next bytes, the last ones for ever."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.closes = False
        self.port = 0

    def script(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/below"

    @property
    def asked(self) -> list[str]:
        return [it.split(b" HTTP/", 1)[0].decode().replace("/below", "", 1) for it in self.requests]

    @property
    def keys(self) -> list[str | None]:
        return [self._header(it, "idempotency-key") for it in self.requests]

    def body(self, n: int) -> Any:
        return json.loads(self.requests[n].partition(b"\r\n\r\n")[2])

    @staticmethod
    def _header(request: bytes, name: str) -> str | None:
        for line in request.partition(b"\r\n\r\n")[0].decode().split("\r\n"):
            found, _, value = line.partition(": ")
            if found.lower() == name:
                return value
        return None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = self._header(head, "content-length")
                self.requests.append(head + (await reader.readexactly(int(length)) if length else b""))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                writer.write(answer)
                await writer.drain()
                if not answer or self.closes:
                    break
        writer.close()


class SocketClient(AnyClient):
    """A client on real sockets. The blocking one runs in a thread beside the server."""

    def __init__(self, kind: str, url: str, **options: Any) -> None:
        self.clock = InstantClock()
        client = Gpuherd if kind == "sync" else AsyncGpuherd
        super().__init__(client(url, KEY, clock=self.clock, rng=random.Random(7), **options))

    async def __call__(self, what: Callable[[Any], Any]) -> Any:
        if isinstance(self.herd, Gpuherd):
            return await asyncio.to_thread(lambda: asyncio.run(super(SocketClient, self).__call__(what)))
        return await super().__call__(what)

    async def close(self) -> None:
        closing = self.herd.close()
        if closing is not None:
            await closing


@pytest.fixture
async def network() -> AsyncIterator[RawServer]:
    it = RawServer()
    listening = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.port = listening.sockets[0].getsockname()[1]
    yield it
    listening.close()


@pytest.fixture(params=["sync", "async"])
async def ask(request: pytest.FixtureRequest, network: RawServer) -> AsyncIterator[SocketClient]:
    it = SocketClient(request.param, network.url)
    yield it
    await it.close()


def create(herd: Any) -> Any:
    return herd.instances.create("train-1", "RTX 4090 24GB", 101)


def stop_under(key: str, herd: Any) -> Any:
    return herd.instances.stop("train-1", idempotency_key=key)


def look(herd: Any) -> Any:
    return herd.instances.get("train-1")


def page(*ids: str, following: str | None = None) -> bytes:
    return reply({"instances": [details(id=it) for it in ids], "total": 9, "nextCursor": following})


# What is sent


async def test_a_request_arrives_as_it_was_meant(ask: SocketClient, network: RawServer) -> None:
    network.script(reply(details()))
    await ask(lambda herd: herd.instances.get("../a/b?c=d#e %41"))
    head = network.requests[0].decode()
    assert head.startswith("GET /below/api/instances/%2E%2E%2Fa%2Fb%3Fc%3Dd%23e%20%2541 HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}\r\n" in head
    assert f"User-Agent: gpuherd-python/{__version__}\r\n" in head


async def test_only_what_is_wished_for_is_sent(ask: SocketClient, network: RawServer) -> None:
    network.script(reply(details(), 201))
    await ask(
        lambda herd: herd.instances.create(
            "ä",
            "b",
            "7",
            gpu_num=2,
            rootfs_size=None,
            regions=("X", "Y"),
            max_hourly_price=0.7,
            health_check=HealthCheckBody(target_port=80, expected_status=(200, 204), max_wait_time_ms=5000),
            wait_for_capacity_s=60,
            volumes={"v-1": "/data"},
            idempotency_key="mine",
        )
    )
    assert network.keys == ["mine"]
    assert network.body(0) == {
        "name": "ä",
        "productName": "b",
        "templateId": "7",
        "gpuNum": 2,
        "regions": ["X", "Y"],
        "maxHourlyPrice": "0.7",
        "healthCheck": {"targetPort": 80, "expectedStatus": [200, 204], "maxWaitTimeMs": 5000},
        "waitForCapacity": {"seconds": 60},
        "volumes": [{"id": "v-1", "mountPath": "/data"}],
    }


async def test_an_instance_will_do_for_its_id(ask: SocketClient, network: RawServer) -> None:
    network.script(reply(accepted().body, 202))
    await ask(lambda herd: herd.instances.stop(Instance.of(details())))
    assert network.asked == ["POST /api/instances/inst_1/stop"]


async def test_what_no_request_can_hold_is_refused_here(ask: SocketClient, network: RawServer) -> None:
    for what in (lambda herd: herd.instances.delete(""), lambda herd: herd.keys.revoke("")):
        with pytest.raises(ValueError, match="names nothing"):
            await ask(what)
    for key in ("", "two words", "a\r\nX: y", "ü", "x" * 256):
        with pytest.raises(ValueError, match="idempotency_key"):
            await ask(partial(stop_under, key))
    assert network.requests == []


async def test_proxies_of_the_environment_are_ignored(
    ask: SocketClient, network: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    network.script(reply(details()))
    assert (await ask(look)).id == "inst_1"


async def test_redirects_are_not_followed(ask: SocketClient, network: RawServer) -> None:
    network.script(reply(b"", 302, Location="/elsewhere"))
    with pytest.raises(GpuherdError):
        await ask(look)
    assert len(network.requests) == 1


async def test_a_connection_is_used_again(ask: SocketClient, network: RawServer) -> None:
    network.script(reply(details()))
    for _ in range(3):
        await ask(look)
    assert network.connections == 1


async def test_threads_may_share_the_blocking_client(network: RawServer) -> None:
    network.script(reply(details()))
    with Gpuherd(network.url, KEY) as herd:
        found = await asyncio.gather(*(asyncio.to_thread(herd.instances.get, "train-1") for _ in range(20)))
    assert [it.id for it in found] == ["inst_1"] * 20


# What is repeated


@pytest.mark.parametrize(
    "trouble", [LOST, b"what?\r\n\r\n", refusal(502, "CLOUD_ERROR"), refusal(503, "X", retryAfter=2)]
)
async def test_a_create_is_repeated_with_the_same_key(
    ask: SocketClient, network: RawServer, trouble: bytes
) -> None:
    network.script(trouble, trouble, reply(details(), 201))
    assert (await ask(create)).id == "inst_1"
    assert len(network.requests) == 3
    assert len(set(network.keys)) == 1 and network.keys[0]


async def test_each_create_has_a_key_of_its_own(ask: SocketClient, network: RawServer) -> None:
    network.script(reply(details(), 201))
    await ask(create)
    await ask(create)
    assert len(set(network.keys)) == 2 and all(network.keys)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_retries_can_be_left_to_the_caller(kind: str, network: RawServer) -> None:
    ask = SocketClient(kind, network.url, max_retries=0)
    network.script(refusal(503, "X", retryAfter=2))
    with pytest.raises(Unavailable):
        await ask(create)
    assert (len(network.requests), ask.clock.slept) == (1, [])
    await ask.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_nobody_there_means_that_nothing_was_sent(kind: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ask = SocketClient(kind, f"http://127.0.0.1:{port}")
    with pytest.raises(ConnectionFailed, match="gpuherd serve") as caught:
        await ask(create)
    assert (caught.value.sent, caught.value.may_have_happened) == (False, False)
    assert caught.value.idempotency_key and "refused" in str(caught.value)
    # It gives up after some tries.
    assert len(ask.clock.slept) == 4 and sum(ask.clock.slept) < 4
    await ask.close()


async def test_no_try_begins_after_the_time_of_one_answer(ask: SocketClient, network: RawServer) -> None:
    network.script(refusal(503, "X", retryAfter=29))
    with pytest.raises(Unavailable):
        await ask(create)
    assert len(network.requests) == 2


async def test_one_lost_answer_leaves_it_open_whether_it_happened(
    ask: SocketClient, network: RawServer
) -> None:
    network.script(LOST, refusal(409, "NO_OPTIMAL_PRODUCT_ANY_REGION"))
    with pytest.raises(Conflict) as caught:
        await ask(create)
    assert caught.value.may_have_happened is True


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal(500, "INTERNAL_ERROR"), Unavailable),
        (refusal(409, "CONFLICT"), Conflict),
        (refusal(429, "QUOTA_EXCEEDED"), TooManyRequests),
        (refusal(503, "NETWORK_ERROR", retryAfter=3600), Unavailable),
        (reply(b"<html>"), UnexpectedReply),
    ],
)
async def test_what_a_repeat_cannot_help_is_asked_once(
    ask: SocketClient, network: RawServer, answer: bytes, kind: type[GpuherdError]
) -> None:
    network.script(answer)
    with pytest.raises(kind):
        await ask(create)
    assert len(network.requests) == 1


async def test_it_waits_as_long_as_the_server_asks(ask: SocketClient, network: RawServer) -> None:
    network.script(
        refusal(429, "RATE_LIMIT_EXCEEDED", retryAfter=7),
        reply(b"busy", 503, Retry_After="4"),
        reply(details()),
    )
    await ask(look)
    assert ask.clock.slept == [7, 4]


@pytest.mark.parametrize(
    "order",
    [
        lambda herd: herd.instances.stop("train-1"),
        lambda herd: herd.instances.start("train-1"),
        lambda herd: herd.instances.restart("train-1"),
        lambda herd: herd.instances.delete("train-1"),
        lambda herd: herd.sync(),
        lambda herd: herd.orphans.delete("m1"),
        lambda herd: herd.webhooks.test("https://example.com"),
        lambda herd: herd.keys.revoke("k1"),
        lambda herd: herd.secrets.remove("hf", shared=True),
    ],
)
async def test_every_change_carries_a_key(ask: SocketClient, network: RawServer, order: Any) -> None:
    network.script(refusal(503, "X", retryAfter=1))
    with pytest.raises(Unavailable):
        await ask(order)
    assert network.keys == [network.keys[0]] * 5 and network.keys[0]


# What a broken answer means


@pytest.mark.parametrize("answer", [LOST, b"what?\r\n\r\n", HALF])
async def test_a_broken_answer_may_mean_that_it_was_obeyed(
    ask: SocketClient, network: RawServer, answer: bytes
) -> None:
    network.script(answer)
    network.closes = True
    with pytest.raises(ConnectionFailed) as caught:
        await ask(create)
    assert caught.value.sent and caught.value.may_have_happened
    shown = repr(caught.value) + str(caught.value) + repr(caught.value.__cause__)
    assert KEY not in shown and "may have been obeyed" in shown


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(kind: str, network: RawServer) -> None:
    network.script(HALF)
    ask = SocketClient(kind, network.url, timeout_s=0.2, max_retries=0)
    with pytest.raises(ConnectionFailed, match="no answer in time") as caught:
        await ask(look)
    assert caught.value.sent
    await ask.close()


async def test_a_secret_is_nowhere_but_in_its_place_and_a_lost_one_is_told(
    ask: SocketClient, network: RawServer
) -> None:
    network.script(reply({"id": "k1", "key": "canary"}, 201))
    made = await ask(lambda herd: herd.keys.create(["read"]))
    assert made.secret.reveal() == "canary"
    assert "canary" not in repr(made) and "canary" not in repr(made.key.raw)
    network.script(LOST, reply({"id": "k1", "key": None}, 201))
    with pytest.raises(SecretLost, match="key k1 was made") as caught:
        await ask(lambda herd: herd.keys.create(["read"]))
    assert caught.value.id == "k1"


# Lists


async def test_a_list_goes_on_to_its_last_page(ask: SocketClient, network: RawServer) -> None:
    network.script(page("a", "b", following="c1"), LOST, page("c", following="c2"), page())
    found = await ask(lambda herd: herd.instances.list(status="running", label=("team", "a b")))
    assert [it.id for it in found] == ["a", "b", "c"]
    first = "GET /api/instances?status=running&label=team%3Da+b&limit=100"
    assert network.asked == [first, f"{first}&cursor=c1", f"{first}&cursor=c1", f"{first}&cursor=c2"]


async def test_one_page_has_its_place_and_its_answer(ask: SocketClient, network: RawServer) -> None:
    network.script(page("inst_1", following="c"))
    one = await ask(lambda herd: herd.instances.list(page_size=1).page("b"))
    assert ([it.id for it in one.entries], one.total, one.next_cursor) == (["inst_1"], 9, "c")
    assert one.raw["nextCursor"] == "c"
    assert network.asked == ["GET /api/instances?limit=1&cursor=b"]
    network.script(page("inst_1", following="c"), page("inst_2"))
    pages = await ask(lambda herd: herd.instances.list().pages())
    assert [it.next_cursor for it in pages] == ["c", None]


async def test_pages_are_fetched_when_they_are_needed(network: RawServer) -> None:
    network.script(page("a", "b", following="c1"), page("c"))

    def take() -> None:
        with Gpuherd(network.url, KEY) as herd:
            found = herd.instances.list()
            assert network.requests == []
            assert [next(found).id, next(found).id] == ["a", "b"]
            assert len(network.requests) == 1
            assert [it.id for it in found] == ["c"]

    await asyncio.to_thread(take)


async def test_a_list_that_is_none_or_goes_in_circles_is_an_error(
    ask: SocketClient, network: RawServer
) -> None:
    network.script(reply({"total": 0}))
    for what in (
        lambda herd: herd.instances.list(),
        lambda herd: herd.products(),
        lambda herd: herd.keys.list(),
    ):
        with pytest.raises(UnexpectedReply, match="no list of"):
            await ask(what)
    network.script(page("a", following="c1"))
    with pytest.raises(UnexpectedReply, match="same page"):
        await ask(lambda herd: herd.instances.list())


async def test_a_whole_list_is_a_tuple_with_its_answer(ask: SocketClient, network: RawServer) -> None:
    answer = {"regions": [{"code": "CN-HK-01"}], "total": 1}
    network.script(reply(answer))
    regions = await ask(lambda herd: herd.regions())
    assert ([it.code for it in regions], regions.raw) == (["CN-HK-01"], answer)
    assert isinstance(regions, tuple)


async def test_the_past_is_read_from_an_event_on(ask: SocketClient, network: RawServer) -> None:
    network.script(reply({"events": [], "nextCursor": None, "lastEventId": "9"}))
    history = await ask(lambda herd: herd.history("inst_1", type="instance.ready", since=7, limit=5))
    assert (history.events, history.last_event_id) == ((), "9")
    query = "instance=inst_1&type=instance.ready&limit=5&lastEventId=7"
    assert network.asked == [f"GET /api/events/history?{query}"]


async def test_an_unhealthy_server_is_an_answer(ask: SocketClient, network: RawServer) -> None:
    network.script(reply({"status": "unhealthy", "dependencies": {"database": {"status": "down"}}}, 503))
    assert (await ask(lambda herd: herd.health())).status == "unhealthy"
    assert len(network.requests) == 1
