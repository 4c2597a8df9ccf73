"""The checks over the network: our server, Novita, and the clocks."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gpuherd import __version__
from gpuherd.bootstrap.key_files import CannotStart, stored_admin_key
from gpuherd.bootstrap.serve import LOOPBACK_HOSTS
from gpuherd.client.client_errors import BadConfiguration
from gpuherd.client.server_address import Address, address_of
from gpuherd.domain.secret import Secret
from gpuherd.ops.doctor_results import (
    OK,
    PROBLEM,
    WARNING,
    CheckResult,
    judge_clock,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import run_in_daemon_thread
from gpuherd.settings import Settings


def server_address(settings: Settings) -> Address:
    """Return where the server is, and the key that opens it, if one is known."""
    key = settings.api_key or settings.admin_key
    if key is None and settings.url is None:
        key = stored_admin_key(settings.data_dir)
    return address_of(settings.server_url, key)


TIMEOUT_S = 8.0
BODY_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class HttpAnswer:
    """A reply, and the offset of our clock."""

    status: int
    body: dict[str, Any]
    took_s: float
    # How far our clock is ahead; None if the reply has no date.
    clock_offset: timedelta | None


@dataclass(frozen=True)
class NoAnswer:
    """No reply. The reason quotes nothing of the request."""

    reason: str


Answer = HttpAnswer | NoAnswer


async def http_query(url: str, key: Secret | None, clock: Clock, timeout_s: float = TIMEOUT_S) -> Answer:
    """Send a GET request to `url`. Like the service, it follows no redirect and uses no proxy."""
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
    """Uses the system resolver, which may hang, in a thread that can be abandoned."""

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
        """Nothing to close."""


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
    """Return a JSON object; empty for anything else."""
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
    # The header is cut to the second: on average half a second is missing.
    return ours - theirs.replace(tzinfo=theirs.tzinfo or UTC) - timedelta(seconds=0.5)


def _reason(error: Exception) -> str:
    """Describe an error without quoting it: its text may hold headers."""
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


NAME, KEY = "server", "key"


@dataclass(frozen=True)
class ServerAnswers:
    """A server's answer to each request. The last one needs an admin key."""

    url: str
    alive: Answer
    health: Answer
    document: Answer
    keys: Answer | None


def is_remote(settings: Settings) -> bool:
    """Return True if the server runs elsewhere, so that this machine needs nothing of its own."""
    return settings.url is not None and urlsplit(settings.url).hostname not in LOOPBACK_HOSTS


async def check_server(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Check the server."""
    key = _key(settings)
    answers = await _query_server(settings.server_url, key, clock)
    findings = [judge_server(answers, expected=settings.url is not None)]
    if is_gpuherd(answers.alive):
        findings.append(judge_key(answers))
        if is_remote(settings) and isinstance(answers.alive, HttpAnswer):
            findings += judge_clock(answers.alive.clock_offset, "the server")
    if key is not None and is_remote(settings) and settings.server_url.startswith("http://"):
        findings.append(unencrypted_key_finding(settings.server_url))
    return findings


def _key(settings: Settings) -> Secret | None:
    try:
        return server_address(settings).key
    except (BadConfiguration, CannotStart):
        # The checks of settings and files report the problem.
        return None


async def _query_server(url: str, key: Secret | None, clock: Clock) -> ServerAnswers:
    alive = await http_query(f"{url}/livez", None, clock)
    if not is_gpuherd(alive):
        # An unknown server gets no key.
        return ServerAnswers(url, alive, alive, alive, None)
    health, document, keys = await asyncio.gather(
        http_query(f"{url}/health", None, clock),
        http_query(f"{url}/openapi.json", None, clock),
        http_query(f"{url}/api/keys", key, clock),
    )
    return ServerAnswers(url, alive, health, document, None if key is None else keys)


def is_gpuherd(answer: Answer) -> bool:
    """Return True if the answer came from gpuherd."""
    return isinstance(answer, HttpAnswer) and answer.body.get("status") == "alive"


def judge_server(answers: ServerAnswers, *, expected: bool) -> CheckResult:
    """Judge the server; `expected` if the settings name one."""
    if isinstance(answers.alive, NoAnswer):
        return _unreachable_server(answers, answers.alive, expected=expected)
    if not is_gpuherd(answers.alive):
        advice = "set GPUHERD_URL to the address of a gpuherd server, or GPUHERD_PORT to another port"
        return CheckResult(NAME, PROBLEM, f"something else than gpuherd answers at {answers.url}", advice)
    version = _version(answers.document)
    health = answers.health.body if isinstance(answers.health, HttpAnswer) else {}
    state = str(health.get("status") or "silent about its health")
    facts = {"version": version, "health": state}
    words = f"gpuherd {version or '?'} at {answers.url} is {state}"
    if state != "healthy":
        grave = state != "degraded"
        advice = _unhealthy_parts(health) or f"look at {answers.url}/health and at the log of the server"
        return CheckResult(NAME, PROBLEM if grave else WARNING, words, advice, facts)
    if version != __version__:
        advice = "use the same version on both sides: some commands may not understand each other"
        return CheckResult(NAME, WARNING, f"{words}, but this is gpuherd {__version__}", advice, facts)
    return CheckResult(NAME, OK, words, facts=facts)


def _unreachable_server(answers: ServerAnswers, no_answer: NoAnswer, *, expected: bool) -> CheckResult:
    if expected:
        advice = "check that it runs, and that GPUHERD_URL is right"
        return CheckResult(NAME, PROBLEM, f"{answers.url} cannot be reached: {no_answer.reason}", advice)
    advice = "start one: gpuherd serve (or gpuherd serve --simulator)"
    return CheckResult(NAME, WARNING, f"no server runs at {answers.url}", advice)


def _version(document: Answer) -> str:
    info = document.body.get("info") if isinstance(document, HttpAnswer) else None
    return str(info.get("version") or "") if isinstance(info, dict) else ""


def _unhealthy_parts(health: dict[str, object]) -> str:
    """Return the names of the unhealthy parts."""
    dependencies = health.get("dependencies")
    parts = dependencies.items() if isinstance(dependencies, dict) else ()
    words = [
        f"{name} is {it.get('status')}"
        for name, it in parts
        if isinstance(it, dict) and it.get("status") != "up"
    ]
    if health.get("installationShared"):
        words.append("a second database uses this installation's id; stop it, then gpuherd creates resume")
    elif health.get("createsBlocked"):
        words.append("nothing new is rented until gpuherd creates resume")
    if health.get("collectorBraked") and not health.get("installationShared"):
        words.append("look at gpuherd orphans, then gpuherd orphans resume")
    return "; ".join(words)


def judge_key(answers: ServerAnswers) -> CheckResult:
    """Judge what the key allows."""
    match answers.keys:
        case None:
            advice = "set GPUHERD_API_KEY to a key of this server (an admin makes one: gpuherd keys create)"
            return CheckResult(KEY, PROBLEM, "no key for the server is known here", advice)
        case HttpAnswer(status=200):
            return CheckResult(KEY, OK, "accepted, with the scope admin", facts={"scope": "admin"})
        case HttpAnswer(status=403) as answered:
            details = answered.body.get("details")
            scope = str(details.get("scope") or "?") if isinstance(details, dict) else "?"
            return CheckResult(KEY, OK, f"accepted, with the scope {scope}", facts={"scope": scope})
        case HttpAnswer(status=401):
            advice = "set GPUHERD_API_KEY to a key of this server; this one is unknown, expired or revoked"
            return CheckResult(KEY, PROBLEM, "the server does not accept the key", advice)
        case HttpAnswer(status=429):
            advice = "wait a minute, or let an admin give the key a higher limit"
            return CheckResult(KEY, WARNING, "accepted, but its requests are used up for now", advice)
        case _:
            return CheckResult(
                KEY, WARNING, "the server did not say whether it accepts the key", "ask again later"
            )


def unencrypted_key_finding(url: str) -> CheckResult:
    """Return the finding that the network can read the key."""
    advice = "put TLS in front of the server and use https, or reach it through ssh -L or a VPN"
    return CheckResult(KEY, WARNING, f"it travels to {url} unencrypted", advice)


# Novita's smallest read; it costs nothing.
PROBE_PATH = "/gpu-instance/openapi/v1/clusters"


SLOW_S = 3.0
NAME_cloud = "novita"


async def check_cloud(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Make one cheap call to Novita with the configured key."""
    if settings.novita_api_key is None:
        return [judge_no_key()]
    base = settings.novita_api_base_url
    answer = await http_query(base + PROBE_PATH, settings.novita_api_key, clock)
    clock_offset = answer.clock_offset if isinstance(answer, HttpAnswer) else None
    return [judge_cloud(base, answer), *judge_clock(clock_offset, "Novita")]


def judge_no_key() -> CheckResult:
    return CheckResult(
        NAME_cloud,
        WARNING,
        "no NOVITA_API_KEY is set, so nothing real can be rented",
        "put your key into the environment or gpuherd.toml; to try without one: gpuherd serve --simulator",
    )


def judge_cloud(base: str, answer: Answer) -> CheckResult:
    """Judge what an answer, or none, means for renting."""
    if isinstance(answer, NoAnswer):
        advice = "check the network, the firewall and NOVITA_API_BASE_URL; proxies are not used"
        return CheckResult(NAME_cloud, PROBLEM, f"{base} cannot be reached: {answer.reason}", advice)
    took = f"{answer.took_s * 1000:.0f} ms"
    facts = {"status": answer.status, "latencyMs": round(answer.took_s * 1000)}
    match answer.status:
        case 200 if isinstance(answer.body.get("data"), list):
            slow = answer.took_s > SLOW_S
            return CheckResult(
                NAME_cloud,
                WARNING if slow else OK,
                f"{base} answers in {took} and accepts the key",
                "that is slow; look at the network between here and Novita" if slow else "",
                facts,
            )
        case 401 | 403:
            advice = "copy the key again from Novita's console into NOVITA_API_KEY, or make a new one there"
            return CheckResult(NAME_cloud, PROBLEM, f"{base} does not accept the key", advice, facts)
        case 429:
            advice = (
                "wait a minute; if it stays so, something else uses the same key, or lower NOVITA_RATE_LIMIT"
            )
            return CheckResult(NAME_cloud, WARNING, f"{base} wants fewer calls (HTTP 429)", advice, facts)
        case status if status >= 500:
            advice = "wait: gpuherd goes on by itself when Novita is well again"
            return CheckResult(NAME_cloud, WARNING, f"{base} is in trouble (HTTP {status})", advice, facts)
        case status:
            return CheckResult(
                NAME_cloud,
                PROBLEM,
                f"{base} answers, but not as Novita does (HTTP {status})",
                "NOVITA_API_BASE_URL must be the root of the host, such as https://api.novita.ai",
                facts,
            )
