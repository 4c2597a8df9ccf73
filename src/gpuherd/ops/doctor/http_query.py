"""One HTTP GET, sent once, bounded in time and size, answered or not."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gpuherd import __version__
from gpuherd.domain.secret import Secret
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import run_in_daemon_thread

TIMEOUT_S = 8.0
BODY_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class HttpAnswer:
    """An answer, and how our clock differs from the one of whoever gave it."""

    status: int
    body: dict[str, Any]
    took_s: float
    # How far our clock is ahead of theirs; None if they do not tell the time.
    clock_offset: timedelta | None


@dataclass(frozen=True)
class NoAnswer:
    """No answer; the reason holds nothing of what was sent."""

    reason: str


Answer = HttpAnswer | NoAnswer


async def http_query(url: str, key: Secret | None, clock: Clock, timeout_s: float = TIMEOUT_S) -> Answer:
    """GET `url`; no redirect is followed and no proxy of the environment is used, as in the service."""
    headers = {"Accept": "application/json", "User-Agent": f"gpuherd-doctor/{__version__}"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key.reveal()}"
    began_s, began = clock.monotonic(), clock.now()
    try:
        async with (
            asyncio.timeout(timeout_s),
            _session() as session,
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            raw = await _read(response)
            took_s = clock.monotonic() - began_s
            clock_offset = _clock_offset(response.headers.get("Date"), began + timedelta(seconds=took_s / 2))
            return HttpAnswer(response.status, _object(raw), took_s, clock_offset)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return NoAnswer(_reason(error))


class _Resolver(AbstractResolver):
    """Asks the machine's own resolver, which may hang, in a thread that may be left behind."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await run_in_daemon_thread(lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM))
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=0
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(resolver=_Resolver())
    return aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar())


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > BODY_MAX_BYTES:
            return b""
    return bytes(body)


def _object(raw: bytes) -> dict[str, Any]:
    """Read a JSON object; anything else is as good as nothing."""
    try:
        body = json.loads(raw)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _clock_offset(date: str | None, ours: datetime) -> timedelta | None:
    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    # It is cut to the second: on average half of one is missing.
    return ours - theirs.replace(tzinfo=theirs.tzinfo or UTC) - timedelta(seconds=0.5)


def _reason(error: Exception) -> str:
    """Say what happened without quoting the error: its text may hold headers."""
    match error:
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ClientConnectorDNSError():
            return "the host name cannot be resolved"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not trusted"
        case aiohttp.ClientConnectorSSLError():
            return "no secure connection can be made"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return "the connection is refused"
        case aiohttp.ClientConnectorError():
            return "no connection can be made"
        case aiohttp.ClientResponseError():
            return "the answer is not HTTP"
        case _:
            return "the connection broke"
