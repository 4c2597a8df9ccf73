"""Asks an application through the SSRF-safe client whether it is in use."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from gpuherd import __version__
from gpuherd.adapters.probes.addresses import UnusableAddress, host_of, url_of
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.endings.idleness import AppAnswer
from gpuherd.domain.instance.health import speaks_http
from gpuherd.ports.egress import EgressFailure, EgressHttp, EgressReply
from gpuherd.resilience.bulkhead import Bulkhead

CONCURRENCY, CONCURRENCY_PER_HOST = 16, 8
SEAT_WAIT_S = 10.0
TIMEOUT_S = 10.0
BODY_MAX_BYTES = 4096

_HEADERS = {"accept": "application/json", "user-agent": f"gpuherd/{__version__}"}
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
                    headers=_HEADERS,
                    body=None,
                    timeout_s=TIMEOUT_S,
                    max_bytes=BODY_MAX_BYTES,
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
