"""The gpuherd server that the command line talks to: is it there, is it well, and what may our key do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuherd import __version__
from gpuherd.bootstrap.connect import connection_of
from gpuherd.bootstrap.data_dir import CannotStart
from gpuherd.bootstrap.doctor.asking import Answer, Heard, Silence, ask
from gpuherd.bootstrap.doctor.judging import OK, PROBLEM, WARNING, judge_clock
from gpuherd.bootstrap.serve import LOOPBACK
from gpuherd.clock import Clock
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.cli.doctor import Finding
from gpuherd.entrypoints.cli.problems import BadConfiguration
from gpuherd.settings import Settings

NAME, KEY = "server", "key"


@dataclass(frozen=True)
class Visit:
    """What a server said to each question; the last one needs an admin, and tells others what they are."""

    url: str
    alive: Answer
    health: Answer
    document: Answer
    keys: Answer | None


def is_remote(settings: Settings) -> bool:
    """Tell whether the server is somebody else's affair: the machine here then needs nothing of its own."""
    return settings.url is not None and urlsplit(settings.url).hostname not in LOOPBACK


async def check_server(settings: Settings, clock: Clock) -> list[Finding]:
    """Visit the server."""
    key = _key(settings)
    visit = await _visit(settings.server_url, key, clock)
    findings = [judge_server(visit, expected=settings.url is not None)]
    if is_ours(visit.alive):
        findings.append(judge_key(visit))
        if is_remote(settings) and isinstance(visit.alive, Heard):
            findings += judge_clock(visit.alive.ahead, "the server")
    if key is not None and is_remote(settings) and settings.server_url.startswith("http://"):
        findings.append(in_the_clear(settings.server_url))
    return findings


def _key(settings: Settings) -> Secret | None:
    try:
        key = connection_of(settings).api_key
    except (BadConfiguration, CannotStart):
        # The checks of settings and files say what is wrong with it.
        return None
    return None if key is None else Secret(key)


async def _visit(url: str, key: Secret | None, clock: Clock) -> Visit:
    alive = await ask(f"{url}/livez", None, clock)
    if not is_ours(alive):
        # A stranger gets no key.
        return Visit(url, alive, alive, alive, None)
    health, document, keys = await asyncio.gather(
        ask(f"{url}/health", None, clock),
        ask(f"{url}/openapi.json", None, clock),
        ask(f"{url}/api/keys", key, clock),
    )
    return Visit(url, alive, health, document, None if key is None else keys)


def is_ours(answer: Answer) -> bool:
    """Tell whether it was a gpuherd that answered."""
    return isinstance(answer, Heard) and answer.body.get("status") == "alive"


def judge_server(visit: Visit, *, expected: bool) -> Finding:
    """Say how the server is; `expected` where somebody has said that there is one."""
    if isinstance(visit.alive, Silence):
        return _absent(visit, visit.alive, expected=expected)
    if not is_ours(visit.alive):
        advice = "set GPUHERD_URL to the address of a gpuherd server, or GPUHERD_PORT to another port"
        return Finding(NAME, PROBLEM, f"something else than gpuherd answers at {visit.url}", advice)
    version = _version(visit.document)
    health = visit.health.body if isinstance(visit.health, Heard) else {}
    state = str(health.get("status") or "silent about its health")
    facts = {"version": version, "health": state}
    words = f"gpuherd {version or '?'} at {visit.url} is {state}"
    if state != "healthy":
        grave = state != "degraded"
        advice = _troubles(health) or f"look at {visit.url}/health and at the log of the server"
        return Finding(NAME, PROBLEM if grave else WARNING, words, advice, facts)
    if version != __version__:
        advice = "use the same version on both sides: some commands may not understand each other"
        return Finding(NAME, WARNING, f"{words}, but this is gpuherd {__version__}", advice, facts)
    return Finding(NAME, OK, words, facts=facts)


def _absent(visit: Visit, silence: Silence, *, expected: bool) -> Finding:
    if expected:
        advice = "check that it runs, and that GPUHERD_URL is right"
        return Finding(NAME, PROBLEM, f"{visit.url} cannot be reached: {silence.reason}", advice)
    advice = "start one: gpuherd serve (or gpuherd serve --simulator)"
    return Finding(NAME, WARNING, f"no server runs at {visit.url}", advice)


def _version(document: Answer) -> str:
    info = document.body.get("info") if isinstance(document, Heard) else None
    return str(info.get("version") or "") if isinstance(info, dict) else ""


def _troubles(health: dict[str, object]) -> str:
    """Name what makes it unwell."""
    dependencies = health.get("dependencies")
    parts = dependencies.items() if isinstance(dependencies, dict) else ()
    words = [
        f"{name} is {it.get('status')}"
        for name, it in parts
        if isinstance(it, dict) and it.get("status") != "up"
    ]
    if health.get("createsBlocked"):
        words.append("nothing new is rented until POST /api/creates/resume")
    if health.get("collectorBraked"):
        words.append("look at gpuherd orphans, then gpuherd orphans resume")
    return "; ".join(words)


def judge_key(visit: Visit) -> Finding:
    """Say what the key opens."""
    match visit.keys:
        case None:
            advice = "set GPUHERD_API_KEY to a key of this server (an admin makes one: gpuherd keys create)"
            return Finding(KEY, PROBLEM, "no key for the server is known here", advice)
        case Heard(status=200):
            return Finding(KEY, OK, "accepted, with the scope admin", facts={"scope": "admin"})
        case Heard(status=403) as heard:
            details = heard.body.get("details")
            scope = str(details.get("scope") or "?") if isinstance(details, dict) else "?"
            return Finding(KEY, OK, f"accepted, with the scope {scope}", facts={"scope": scope})
        case Heard(status=401):
            advice = "set GPUHERD_API_KEY to a key of this server; this one is unknown, expired or revoked"
            return Finding(KEY, PROBLEM, "the server does not accept the key", advice)
        case Heard(status=429):
            advice = "wait a minute, or let an admin give the key a higher limit"
            return Finding(KEY, WARNING, "accepted, but its requests are used up for now", advice)
        case _:
            return Finding(
                KEY, WARNING, "the server did not say whether it accepts the key", "ask again later"
            )


def in_the_clear(url: str) -> Finding:
    """Say that everybody on the way can read the key."""
    advice = "put TLS in front of the server and use https, or reach it through ssh -L or a VPN"
    return Finding(KEY, WARNING, f"it travels to {url} unencrypted", advice)
