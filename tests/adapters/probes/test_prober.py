"""Looks at real servers on loopback: what they do becomes a result, and little of it gets in."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Mapping

import pytest
from aiohttp import web

from gpuherd import __version__
from gpuherd.adapters.egress.machine_probes import PROBE_CONCURRENCY, PROBE_CONCURRENCY_PER_HOST, EgressProber
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.instance.health import (
    BODY_MAX_BYTES,
    EndpointHealth,
    EndpointStatus,
    HealthCategory,
    HealthCheck,
)
from gpuherd.ports.egress_port import EgressFailure, EgressReply, FailureCategory
from gpuherd.simulator.wire_reply import page_reply, web_response
from tests.adapters.egress.doubles import Receiver, StubResolver
from tests.adapters.probes.conftest import ProberMaker
from tests.adapters.probes.programs import Answer, drip, pour, program, reset, says
from tests.domain.net.sample_pages import ERROR_PAGES
from tests.support.fake_clock import START, FakeClock

CHECK = HealthCheck(timeout_ms=5_000)
IMPATIENT = HealthCheck(timeout_ms=200)
CLOSED = EgressPolicy()


def answers(endpoint: EndpointHealth) -> tuple[str, str | None]:
    return endpoint.status.value, endpoint.category


async def look(prober: EgressProber, answer: Answer, check: HealthCheck = CHECK) -> EndpointHealth:
    async with program(answer) as running:
        return await prober.probe(running.at(), check)


async def test_a_program_that_answers_is_healthy(prober: EgressProber) -> None:
    async with program() as running:
        port = running.at()
        assert await prober.probe(port, CHECK) == EndpointHealth(
            8080, port.endpoint, "http", EndpointStatus.HEALTHY, HealthCategory.OK, None, 0.0, START
        )


async def test_the_path_goes_below_the_endpoint_and_little_is_told(prober: EgressProber) -> None:
    async with program() as running:
        for below, path in (("/_apps/id/8888", "/health?full=1"), ("/_apps/id/8888/", "/"), ("", "/a%20b")):
            await prober.probe(running.at(below), HealthCheck(path=path))
    assert running.asked == ["/_apps/id/8888/health?full=1", "/_apps/id/8888/", "/a%20b"]
    told = {name.lower(): value for name, value in running.headers[0].items()}
    assert told.pop("user-agent") == f"gpuherd/{__version__}"
    assert set(told) == {"host", "accept", "accept-encoding", "connection"}


@pytest.mark.proves("F45")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (204, ("healthy", "ok")),
        (304, ("unhealthy", "redirect")),
        (401, ("unhealthy", "client_error")),
        (404, ("unhealthy", "client_error")),
        (500, ("unhealthy", "server_error")),
        (503, ("unhealthy", "bad_gateway")),
    ],
)
async def test_a_status_has_its_meaning(status: int, expected: tuple[str, str], prober: EgressProber) -> None:
    endpoint = await look(prober, says("hunter2", status))
    assert answers(endpoint) == expected
    assert endpoint.response_time_ms == 0.0
    assert endpoint.checked_at == START


@pytest.mark.proves("F45")
async def test_a_401_can_be_what_is_wanted(prober: EgressProber) -> None:
    check = HealthCheck(expected_status=(401,), body_contains="log in")
    assert answers(await look(prober, says("please log in", 401), check)) == ("healthy", "ok")


async def test_the_expected_text_is_looked_for(prober: EgressProber) -> None:
    check = HealthCheck(body_contains="✓")
    assert answers(await look(prober, says("bereit ✓"), check)) == ("healthy", "ok")
    assert answers(await look(prober, says("loading"), check)) == ("unhealthy", "unexpected_body")


@pytest.mark.parametrize("kind", ["nginx 502", "haproxy 503", "cloudflare 521", "gunicorn", "envoy connect"])
async def test_an_error_page_with_200_is_unhealthy(kind: str, prober: EgressProber) -> None:
    assert answers(await look(prober, says(ERROR_PAGES[kind]))) == ("unhealthy", "error_page")
    assert answers(await look(prober, says(ERROR_PAGES[kind], content_type="text/plain"))) == (
        "healthy",
        "ok",
    )


async def test_the_simulators_error_page_is_one(prober: EgressProber) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web_response(page_reply(200, "Bad Gateway", shown_status=502))

    assert answers(await look(prober, answer)) == ("unhealthy", "error_page")


@pytest.mark.proves("F45")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int, prober: EgressProber) -> None:
    async with Receiver() as inner:
        for location in ("http://169.254.169.254/latest/meta-data/", inner.url, "file:///etc/passwd"):
            endpoint = await look(prober, says("", status, Location=location))
            assert answers(endpoint) == ("unhealthy", "redirect")
            assert "169.254" not in (endpoint.error or "")
        assert inner.connections == 0


@pytest.mark.proves("F46")
async def test_a_slow_drip_is_a_timeout(prober: EgressProber) -> None:
    # The outer limit only ends the test, should the prober's own fail.
    async with asyncio.timeout(5):
        endpoint = await look(prober, drip, IMPATIENT)
    assert answers(endpoint) == ("unhealthy", "timeout")
    assert endpoint.response_time_ms is None


@pytest.mark.proves("F46")
async def test_of_a_huge_reply_little_is_read(prober: EgressProber) -> None:
    async with asyncio.timeout(5):
        assert answers(await look(prober, pour)) == ("healthy", "ok")


@pytest.mark.parametrize("packed", [gzip.compress, zlib.compress])
async def test_a_packed_bomb_is_unpacked_up_to_the_cap_only(packed: object, prober: EgressProber) -> None:
    assert callable(packed)
    coding = "gzip" if packed is gzip.compress else "deflate"

    def bomb(content: bytes) -> Answer:
        async def answer(_: web.Request) -> web.Response:
            headers = {"content-type": "text/html", "content-encoding": coding}
            return web.Response(body=packed(content), headers=headers)

        return answer

    found = HealthCheck(body_contains="found")
    early, late = b"found".ljust(30_000_000), b"found".rjust(BODY_MAX_BYTES + 1)
    assert answers(await look(prober, bomb(early), found)) == ("healthy", "ok")
    assert answers(await look(prober, bomb(late), found)) == ("unhealthy", "unexpected_body")
    page = ERROR_PAGES["nginx 502"].encode()
    assert answers(await look(prober, bomb(page))) == ("unhealthy", "error_page")
    assert answers(await look(prober, bomb(page.ljust(BODY_MAX_BYTES + 1)))) == ("healthy", "ok")


@pytest.mark.proves("F46")
async def test_a_packed_bomb_takes_no_memory(prober: EgressProber) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < BODY_MAX_BYTES
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(bomb)}\r\n\r\n"
    async with Receiver(head.encode() + bomb) as receiver:
        tracemalloc.start()
        try:
            endpoint = await prober.probe(PortMapping(1, receiver.url, "http"), CHECK)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert answers(endpoint) == ("healthy", "ok")
    assert peak_bytes < 5_000_000


@pytest.mark.parametrize("coding", ["gzip", "br", "nonsense"])
async def test_what_cannot_be_unpacked_is_taken_as_it_is(coding: str, prober: EgressProber) -> None:
    async with Receiver(
        f"HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: 5\r\n\r\nplain".encode()
    ) as receiver:
        port = PortMapping(1, receiver.url, "http")
        assert answers(await prober.probe(port, HealthCheck(body_contains="plain"))) == ("healthy", "ok")


async def test_half_a_packed_body_is_no_error_of_ours(prober: EgressProber) -> None:
    half = gzip.compress(b"found" + bytes(range(256)) * 99)[:200]
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(half)}\r\n\r\n"
    async with Receiver(head.encode() + half) as receiver:
        port = PortMapping(1, receiver.url, "http")
        assert answers(await prober.probe(port, HealthCheck(body_contains="found"))) == ("healthy", "ok")


async def test_a_reset_and_a_refusal_have_their_names(prober: EgressProber) -> None:
    assert answers(await look(prober, reset)) == ("unhealthy", "connection_reset")
    async with program() as running:
        port = running.at()
    assert answers(await prober.probe(port, CHECK)) == ("unhealthy", "connection_refused")


async def test_what_is_not_http_is_a_protocol_error(prober: EgressProber) -> None:
    async with Receiver(b"SSH-2.0-OpenSSH_9.6\r\n") as receiver:
        endpoint = await prober.probe(PortMapping(22, receiver.url, "http"), CHECK)
    assert answers(endpoint) == ("unhealthy", "protocol_error")


async def test_plain_http_behind_https_is_a_tls_error(prober: EgressProber) -> None:
    async with program() as running:
        port = PortMapping(443, f"https://127.0.0.1:{running.port}", "http")
        assert answers(await prober.probe(port, CHECK)) == ("unhealthy", "tls_error")


async def test_an_unknown_name_is_a_dns_failure(prober: EgressProber) -> None:
    for port in (
        PortMapping(80, "http://gone.example.com", "http"),
        PortMapping(22, "gone.example.com:2222", "tcp"),
    ):
        assert answers(await prober.probe(port, CHECK)) == ("unhealthy", "dns_failure")


async def test_a_tcp_port_is_connected_to_and_told_nothing(prober: EgressProber) -> None:
    async with Receiver() as receiver:
        port = PortMapping(22, f"127.0.0.1:{receiver.port}", "tcp")
        endpoint = await prober.probe(port, HealthCheck(path="/x", expected_status=(500,), body_contains="y"))
        assert answers(endpoint) == ("healthy", "ok")
        assert (endpoint.endpoint, endpoint.type, endpoint.response_time_ms) == (port.endpoint, "tcp", 0.0)
        assert receiver.requests == []
    assert answers(await prober.probe(port, CHECK)) == ("unhealthy", "connection_refused")


@pytest.mark.parametrize(
    ("endpoint", "kind"),
    [("", "http"), ("127.0.0.1", "http"), ("", "tcp"), ("a:b", "tcp"), ("http://[", "http")],
)
async def test_an_address_that_is_none_may_still_come(endpoint: str, kind: str, prober: EgressProber) -> None:
    found = await prober.probe(PortMapping(1, endpoint, kind), CHECK)
    assert answers(found) == ("unhealthy", "unreachable")
    assert found.category is not None and found.category.retryable


INSIDE = [
    "127.0.0.1:{}",
    "127.1:{}",
    "2130706433:{}",
    "0:{}",
    "localhost:{}",
    "[::ffff:127.0.0.1]:{}",
    "x.example.com:{}",
]


@pytest.mark.proves("F47")
@pytest.mark.parametrize("place", INSIDE)
async def test_an_inside_address_is_refused_before_a_connection(place: str, make_prober: ProberMaker) -> None:
    prober = make_prober(CLOSED, StubResolver({"x.example.com": [["127.0.0.1"]]}))
    async with Receiver() as listener:
        address = place.format(listener.port)
        for port in (PortMapping(80, f"http://{address}/", "http"), PortMapping(22, address, "tcp")):
            endpoint = await prober.probe(port, CHECK)
            assert answers(endpoint) == ("unhealthy", "blocked_target")
            assert endpoint.category is not None and not endpoint.category.retryable
        assert listener.connections == 0


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://metadata.google.internal",
        "file:///etc/passwd",
        "gopher://127.0.0.1:70",
        "http://user:hunter2@127.0.0.1:8000",
        "http://127.0.0.1:22",
        "http:///x",
        "http://a\r\nX: 1@127.0.0.1:8000",
    ],
)
async def test_an_evil_address_is_blocked_even_where_loopback_is_open(
    endpoint: str, prober: EgressProber
) -> None:
    found = await prober.probe(PortMapping(80, endpoint, "http"), CHECK)
    assert answers(found) == ("unhealthy", "blocked_target")
    assert "hunter2" not in (found.error or "")


async def test_nothing_that_the_program_wrote_is_kept(prober: EgressProber) -> None:
    page = "<title>502 Bad Gateway</title><h1>hunter2</h1>hunter2"
    for answer in (says(page, X_Note="hunter2"), says("hunter2", 500), says("", 302, Location="/hunter2")):
        assert "hunter2" not in repr(await look(prober, answer))


class CrowdedDoor:
    """Counts who is inside, and lets nobody out before the test says so."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.open = asyncio.Event()
        self.timeouts: list[float] = []

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
        max_bytes: int,
    ) -> EgressReply:
        assert (method, body, max_bytes) == ("GET", None, BODY_MAX_BYTES)
        self.timeouts.append(timeout_s)
        await self._stay()
        return EgressReply(200, {}, b"", False, 0.25, "1.2.3.4")

    async def connect(self, host: str, port: int, timeout_s: float) -> float:
        await self._stay()
        raise EgressFailure(FailureCategory.UNREACHABLE, "\x1b[2J" + "x" * 500)

    async def _stay(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.open.wait()
        self.inside -= 1


@pytest.mark.parametrize(("hosts", "seats"), [(100, PROBE_CONCURRENCY), (1, PROBE_CONCURRENCY_PER_HOST)])
async def test_only_so_many_look_at_once(hosts: int, seats: int) -> None:
    door, clock = CrowdedDoor(), FakeClock()
    prober = EgressProber(door, door, clock)
    ports = [PortMapping(n, f"https://h{n % hosts}.example.com:8{n:03d}/", "http") for n in range(1, 101)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(prober.probe(port, HealthCheck(timeout_ms=1234))) for port in ports]
        await clock.settle()
        assert door.inside == seats
        door.open.set()
    assert (door.most, door.inside) == (seats, 0)
    assert {task.result().response_time_ms for task in tasks} == {250.0}
    assert set(door.timeouts) == {1.234}


async def test_nobody_waits_for_a_seat_for_long() -> None:
    door = CrowdedDoor()
    prober = EgressProber(door, door, FakeClock(), seat_wait_s=0.01)
    ports = [PortMapping(n, f"https://h{n}.example.com/", "http") for n in range(PROBE_CONCURRENCY + 1)]
    tasks = [asyncio.create_task(prober.probe(port, HealthCheck())) for port in ports]
    assert await tasks[-1] == EndpointHealth.not_asked(ports[-1])
    door.open.set()
    assert {it.status for it in await asyncio.gather(*tasks[:-1])} == {EndpointStatus.HEALTHY}
    assert (await prober.probe(ports[-1], HealthCheck())).status is EndpointStatus.HEALTHY


async def test_a_failure_is_safe_to_show_and_has_no_response_time() -> None:
    door = CrowdedDoor()
    door.open.set()
    endpoint = await EgressProber(door, door, FakeClock()).probe(PortMapping(22, "a:2222", "tcp"), CHECK)
    assert answers(endpoint) == ("unhealthy", "unreachable")
    assert endpoint.error is not None and endpoint.response_time_ms is None
    assert len(endpoint.error) == 200 and endpoint.error.isprintable() and endpoint.error.isascii()


@pytest.mark.parametrize("failure", list(FailureCategory))
async def test_every_failure_of_the_door_has_a_category(failure: FailureCategory) -> None:
    class BrokenDoor(CrowdedDoor):
        async def connect(self, host: str, port: int, timeout_s: float) -> float:
            raise EgressFailure(failure, "a reason")

    door = BrokenDoor()
    endpoint = await EgressProber(door, door, FakeClock()).probe(PortMapping(22, "a:2222", "tcp"), CHECK)
    assert endpoint.category is not None and failure.value in endpoint.category.value
