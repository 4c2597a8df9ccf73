"""The gpuherd server that the command line talks to: is it there, is it well, and what may our key do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuherd import __version__
from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.bootstrap.serve import LOOPBACK_HOSTS
from gpuherd.client.client_errors import BadConfiguration
from gpuherd.domain.secret import Secret
from gpuherd.ops.connection import server_address
from gpuherd.ops.doctor.http_query import Answer, HttpAnswer, NoAnswer, http_query
from gpuherd.ops.doctor.results import CheckResult
from gpuherd.ops.doctor.verdicts import OK, PROBLEM, WARNING, judge_clock
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import Settings

NAME, KEY = "server", "key"


@dataclass(frozen=True)
class ServerAnswers:
    """What a server said to each question; the last one needs an admin, and tells others what they are."""

    url: str
    alive: Answer
    health: Answer
    document: Answer
    keys: Answer | None


def is_remote(settings: Settings) -> bool:
    """Return True if the server is somebody else's affair: the machine here then needs nothing of its own."""
    return settings.url is not None and urlsplit(settings.url).hostname not in LOOPBACK_HOSTS


async def check_server(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Visit the server."""
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
        # The checks of settings and files say what is wrong with it.
        return None


async def _query_server(url: str, key: Secret | None, clock: Clock) -> ServerAnswers:
    alive = await http_query(f"{url}/livez", None, clock)
    if not is_gpuherd(alive):
        # A stranger gets no key.
        return ServerAnswers(url, alive, alive, alive, None)
    health, document, keys = await asyncio.gather(
        http_query(f"{url}/health", None, clock),
        http_query(f"{url}/openapi.json", None, clock),
        http_query(f"{url}/api/keys", key, clock),
    )
    return ServerAnswers(url, alive, health, document, None if key is None else keys)


def is_gpuherd(answer: Answer) -> bool:
    """Return True if it was a gpuherd that answered."""
    return isinstance(answer, HttpAnswer) and answer.body.get("status") == "alive"


def judge_server(answers: ServerAnswers, *, expected: bool) -> CheckResult:
    """Say how the server is; `expected` where somebody has said that there is one."""
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
    """Name what makes it unwell."""
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
    """Say what the key opens."""
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
    """Say that everybody on the way can read the key."""
    advice = "put TLS in front of the server and use https, or reach it through ssh -L or a VPN"
    return CheckResult(KEY, WARNING, f"it travels to {url} unencrypted", advice)
