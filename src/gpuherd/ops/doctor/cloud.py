"""Novita: can it be reached, does it take our key, and how fast is it."""

from __future__ import annotations

from gpuherd.ops.doctor.http_query import Answer, HttpAnswer, NoAnswer, http_query
from gpuherd.ops.doctor.results import CheckResult
from gpuherd.ops.doctor.verdicts import OK, PROBLEM, WARNING, judge_clock
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import Settings

# The smallest of their reads, and it costs nothing.
PROBE_PATH = "/gpu-instance/openapi/v1/clusters"
SLOW_S = 3.0
NAME = "novita"


async def check_cloud(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Ask Novita one cheap question with the configured key."""
    if settings.novita_api_key is None:
        return [judge_no_key()]
    base = settings.novita_api_base_url
    answer = await http_query(base + PROBE_PATH, settings.novita_api_key, clock)
    clock_offset = answer.clock_offset if isinstance(answer, HttpAnswer) else None
    return [judge_cloud(base, answer), *judge_clock(clock_offset, "Novita")]


def judge_no_key() -> CheckResult:
    return CheckResult(
        NAME,
        WARNING,
        "no NOVITA_API_KEY is set, so nothing real can be rented",
        "put your key into the environment or gpuherd.toml; to try without one: gpuherd serve --simulator",
    )


def judge_cloud(base: str, answer: Answer) -> CheckResult:
    """Say what an answer, or its absence, means for renting."""
    if isinstance(answer, NoAnswer):
        advice = "check the network, the firewall and NOVITA_API_BASE_URL; proxies are not used"
        return CheckResult(NAME, PROBLEM, f"{base} cannot be reached: {answer.reason}", advice)
    took = f"{answer.took_s * 1000:.0f} ms"
    facts = {"status": answer.status, "latencyMs": round(answer.took_s * 1000)}
    match answer.status:
        case 200 if isinstance(answer.body.get("data"), list):
            slow = answer.took_s > SLOW_S
            return CheckResult(
                NAME,
                WARNING if slow else OK,
                f"{base} answers in {took} and accepts the key",
                "that is slow; look at the network between here and Novita" if slow else "",
                facts,
            )
        case 401 | 403:
            advice = "copy the key again from Novita's console into NOVITA_API_KEY, or make a new one there"
            return CheckResult(NAME, PROBLEM, f"{base} does not accept the key", advice, facts)
        case 429:
            advice = (
                "wait a minute; if it stays so, something else uses the same key, or lower NOVITA_RATE_LIMIT"
            )
            return CheckResult(NAME, WARNING, f"{base} wants fewer calls (HTTP 429)", advice, facts)
        case status if status >= 500:
            advice = "wait: gpuherd goes on by itself when Novita is well again"
            return CheckResult(NAME, WARNING, f"{base} is in trouble (HTTP {status})", advice, facts)
        case status:
            return CheckResult(
                NAME,
                PROBLEM,
                f"{base} answers, but not as Novita does (HTTP {status})",
                "NOVITA_API_BASE_URL must be the root of the host, such as https://api.novita.ai",
                facts,
            )
