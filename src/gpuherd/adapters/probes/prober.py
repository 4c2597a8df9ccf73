"""Looks at a machine's ports through the SSRF-safe client: asks over HTTP, or connects and hangs up."""

from __future__ import annotations

import asyncio
import zlib
from contextlib import AsyncExitStack

from gpuherd import __version__
from gpuherd.adapters.probes.addresses import UnusableAddress, host_and_port, host_of, url_of
from gpuherd.clock import Clock
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.health import (
    BODY_MAX_BYTES,
    EndpointHealth,
    HealthCategory,
    classify_reply,
    speaks_http,
)
from gpuherd.domain.instance.health_check import HealthCheck
from gpuherd.ports.egress import EgressFailure, EgressHttp, EgressReply, EgressTcp, FailureCategory
from gpuherd.resilience.bulkhead import Bulkhead

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
