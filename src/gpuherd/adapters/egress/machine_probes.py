"""Probes of the application on a machine: health and activity."""

from __future__ import annotations

import asyncio
import json
import zlib
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit

from gpuherd import __version__
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.health import (
    BODY_MAX_BYTES,
    EndpointHealth,
    HealthCategory,
    HealthCheck,
    classify_reply,
    speaks_http,
)
from gpuherd.domain.instance.idleness import AppAnswer
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.egress_port import (
    EgressFailure,
    EgressHttp,
    EgressReply,
    EgressTcp,
    FailureCategory,
)
from gpuherd.resilience.concurrency import Bulkhead


class UnusableAddress(Exception):
    """The cloud's words for this port name no place that could be asked."""


def url_of(endpoint: str, path: str) -> str:
    """Return the URL of `path` below `endpoint`, which may itself have a path and a query."""
    if "://" not in endpoint:
        raise UnusableAddress
    try:
        base = urlsplit(endpoint)
    except ValueError:
        raise UnusableAddress from None
    below, _, query = path.partition("?")
    queries = "&".join(filter(None, (base.query, query)))
    return urlunsplit((base.scheme, base.netloc, base.path.rstrip("/") + below, queries, ""))


def host_of(endpoint: str) -> str:
    """Return something that is equal for endpoints on one host; any text will do as an endpoint."""
    authority = (endpoint.partition("://")[2] or endpoint).partition("/")[0]
    return authority.rpartition(":")[0] or authority


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Return both parts of "host:port", where an IPv6 address may stand in brackets."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or len(port) > 5:
        raise UnusableAddress
    return host, int(port)


PROBE_CONCURRENCY = 32


# On the simulator every machine has the same host, so a hung one must leave some seats there too.
PROBE_CONCURRENCY_PER_HOST = 16


# Who gets no seat within this is asked in the next round.
SEAT_WAIT_S = 10.0


_HEADERS = {"accept": "*/*", "user-agent": f"gpuherd/{__version__}"}


# zlib's own sign for "a gzip or a zlib header, whichever comes".
_ANY_HEADER = zlib.MAX_WBITS | 32


_CATEGORIES = {
    FailureCategory.BLOCKED_TARGET: HealthCategory.BLOCKED_TARGET,
    FailureCategory.DNS: HealthCategory.DNS_FAILURE,
    FailureCategory.REFUSED: HealthCategory.CONNECTION_REFUSED,
    FailureCategory.RESET: HealthCategory.CONNECTION_RESET,
    FailureCategory.TLS: HealthCategory.TLS_ERROR,
    FailureCategory.TIMEOUT: HealthCategory.TIMEOUT,
    FailureCategory.PROTOCOL: HealthCategory.PROTOCOL_ERROR,
    FailureCategory.UNREACHABLE: HealthCategory.UNREACHABLE,
}


ProbeOutcome = tuple[HealthCategory, str, float | None]


class EgressProber:
    """Implements `Prober`. The timeout of a look begins when it has its seat."""

    def __init__(self, http: EgressHttp, tcp: EgressTcp, clock: Clock, seat_wait_s: float = SEAT_WAIT_S):
        self._http = http
        self._tcp = tcp
        self._clock = clock
        self._bulkhead = Bulkhead(PROBE_CONCURRENCY, PROBE_CONCURRENCY_PER_HOST)
        self._seat_wait_s = seat_wait_s

    async def probe(self, port: PortMapping, check: HealthCheck) -> EndpointHealth:
        async with AsyncExitStack() as seat:
            try:
                async with asyncio.timeout(self._seat_wait_s):
                    await seat.enter_async_context(self._bulkhead(host_of(port.endpoint)))
            except TimeoutError:
                return EndpointHealth.not_asked(port)
            category, detail, elapsed_s = await self._probe_once(port, check)
        return EndpointHealth.seen(port, category, detail, self._clock.now(), elapsed_s)

    async def _probe_once(self, port: PortMapping, check: HealthCheck) -> ProbeOutcome:
        try:
            return await (
                self._probe_http(port, check) if speaks_http(port) else self._probe_tcp(port, check)
            )
        except UnusableAddress:
            return HealthCategory.UNREACHABLE, "the cloud shows no usable address for this port", None
        except EgressFailure as failure:
            return _CATEGORIES[failure.category], failure.detail, None

    async def _probe_http(self, port: PortMapping, check: HealthCheck) -> ProbeOutcome:
        reply = await self._http.request(
            "GET",
            url_of(port.endpoint, check.path),
            headers=_HEADERS,
            body=None,
            timeout_s=check.timeout_s,
            max_bytes=BODY_MAX_BYTES,
        )
        body, truncated = _unpacked(reply)
        category, detail = classify_reply(check, reply.status, reply.headers, body, truncated=truncated)
        return category, detail, reply.elapsed_s

    async def _probe_tcp(self, port: PortMapping, check: HealthCheck) -> ProbeOutcome:
        host, number = host_and_port(port.endpoint)
        elapsed_s = await self._tcp.connect(host, number, check.timeout_s)
        return HealthCategory.OK, "the port takes connections", elapsed_s


def _unpacked(reply: EgressReply) -> tuple[bytes, bool]:
    """Return the body as it was meant, and whether there is more of it; a bomb is unpacked up to the cap."""
    if reply.headers.get("content-encoding", "").strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return reply.body, reply.truncated
    unpacker = zlib.decompressobj(_ANY_HEADER)
    try:
        plain = unpacker.decompress(reply.body, BODY_MAX_BYTES)
    except zlib.error:
        return reply.body, reply.truncated
    return plain, reply.truncated or not unpacker.eof


CONCURRENCY, CONCURRENCY_PER_HOST = 16, 8
TIMEOUT_S = 10.0
ACTIVITY_BODY_MAX_BYTES = 4096
_activity_HEADERS = {"accept": "application/json", "user-agent": f"gpuherd/{__version__}"}
_NOTHING = AppAnswer()


class EgressActivityProbe:
    """Implements `ActivityProbe`."""

    def __init__(self, http: EgressHttp, seat_wait_s: float = SEAT_WAIT_S):
        self._http = http
        self._bulkhead = Bulkhead(CONCURRENCY, CONCURRENCY_PER_HOST)
        self._seat_wait_s = seat_wait_s

    async def ask(self, port: PortMapping, path: str) -> AppAnswer:
        if not speaks_http(port):
            return _NOTHING
        try:
            async with AsyncExitStack() as seat:
                async with asyncio.timeout(self._seat_wait_s):
                    await seat.enter_async_context(self._bulkhead(host_of(port.endpoint)))
                reply = await self._http.request(
                    "GET",
                    url_of(port.endpoint, path),
                    headers=_activity_HEADERS,
                    body=None,
                    timeout_s=TIMEOUT_S,
                    max_bytes=ACTIVITY_BODY_MAX_BYTES,
                )
        except (UnusableAddress, EgressFailure, TimeoutError):
            return _NOTHING
        return read_answer(reply)


def read_answer(reply: EgressReply) -> AppAnswer:
    """Return what a reply says: 204 is idle, 200 in use unless it says since when it was not."""
    if reply.status == 204:
        return AppAnswer(is_idle=True)
    if reply.status != 200 or reply.truncated:
        return _NOTHING
    return AppAnswer(idle_since=_last_active_at(reply.body))


def _last_active_at(body: bytes) -> datetime | None:
    try:
        said = json.loads(body)
        moment = datetime.fromisoformat(said["lastActiveAt"])
        # Without a zone it may be any time, and a year that no zone can be applied to is no time at all.
        return None if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
