"""What each finding means and what to do about it, case by case, without asking anybody."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuherd import __version__
from gpuherd.adapters.sql.migrate import HEAD
from gpuherd.bootstrap.doctor.asking import Answer, Heard, Silence
from gpuherd.bootstrap.doctor.cloud import judge_cloud
from gpuherd.bootstrap.doctor.database import Opened, Unopened, judge_database
from gpuherd.bootstrap.doctor.files import Directory, KeyFile, judge_directory, judge_key_files
from gpuherd.bootstrap.doctor.judging import judge_clock, judge_settings, judge_strangers
from gpuherd.bootstrap.doctor.port import Port, judge_port
from gpuherd.bootstrap.doctor.server import Visit, judge_key, judge_server
from gpuherd.entrypoints.cli.doctor import Finding
from gpuherd.settings import Source

HERE = Path("/data")
GB = 1_000_000_000


def heard(status: int = 200, *, took_s: float = 0.1, **body: Any) -> Heard:
    return Heard(status, body, took_s, timedelta(0))


def advised(finding: Finding) -> str:
    """The verdict; whatever is not well must say what to do."""
    assert (finding.verdict == "ok") != bool(finding.advice)
    return finding.verdict


@pytest.mark.parametrize(
    ("answer", "verdict", "word"),
    [
        (heard(data=[]), "ok", "100 ms"),
        (heard(data=[], took_s=4), "warning", "4000 ms"),
        (heard(401), "problem", "does not accept"),
        (heard(403), "problem", "does not accept"),
        (heard(429), "warning", "fewer calls"),
        (heard(503), "warning", "HTTP 503"),
        (heard(404), "problem", "not as Novita does"),
        (heard(200), "problem", "not as Novita does"),
        (heard(302), "problem", "not as Novita does"),
        (Silence("the host name cannot be resolved"), "problem", "cannot be resolved"),
    ],
)
def test_novita(answer: Answer, verdict: str, word: str) -> None:
    finding = judge_cloud("https://api.example", answer)
    assert advised(finding) == verdict
    assert word in finding.message


@pytest.mark.parametrize(("ahead_s", "verdict"), [(0, "ok"), (30, "ok"), (31, "warning"), (-31, "warning")])
def test_clock(ahead_s: float, verdict: str) -> None:
    (finding,) = judge_clock(timedelta(seconds=ahead_s), "Novita")
    assert advised(finding) == verdict
    assert ("behind" in finding.message) == (ahead_s < -30)


def test_nothing_is_said_of_a_clock_that_could_not_be_compared() -> None:
    assert judge_clock(None, "Novita") == []


def test_each_problem_of_the_settings_names_its_source() -> None:
    problems = [
        "GPUHERD_PORT: must be a number",
        "LOG_LEVEL: must be one of",
        "gpuherd.toml: there is no setting X",
    ]
    sources = {"GPUHERD_PORT": Source.ENVIRONMENT, "LOG_LEVEL": Source.FILE}
    findings = judge_settings(problems, sources)
    assert [advised(it) for it in findings] == ["problem"] * 3
    assert "comes from the environment" in findings[0].message
    assert "comes from gpuherd.toml" in findings[1].message
    assert findings[2].message == problems[2]


def test_settings_without_a_problem() -> None:
    (finding,) = judge_settings([], {"LOG_LEVEL": Source.FILE, "GPUHERD_PORT": Source.DEFAULT})
    assert (advised(finding), finding.message) == ("ok", "1 set, the rest as by default")


def test_a_misspelt_variable_is_named_with_what_was_meant() -> None:
    findings = judge_strangers(["GPUHERD_PROT", "NOVITA_ZZZZZZZZZZZZZZZZZZ"])
    assert [advised(it) for it in findings] == ["warning", "warning"]
    assert [it.advice for it in findings] == ["did you mean GPUHERD_PORT?", "take it out"]


@pytest.mark.parametrize(
    ("directory", "verdict"),
    [
        (Directory(HERE, True, True, 0o700, 9 * GB), "ok"),
        (Directory(HERE, False, True, 0o755, 9 * GB), "ok"),
        (Directory(HERE, True, True, 0o750, 9 * GB), "warning"),
        (Directory(HERE, True, True, 0o700, GB // 2), "warning"),
        (Directory(HERE, True, True, 0o700, GB // 20), "problem"),
        (Directory(HERE, True, False, 0o700, 9 * GB), "problem"),
    ],
)
def test_data_directory(directory: Directory, verdict: str) -> None:
    assert advised(judge_directory(directory)) == verdict


@pytest.mark.parametrize(
    ("files", "verdicts"),
    [
        ([], ["ok"]),
        ([KeyFile(HERE / "a", 0o600, False)], ["ok"]),
        ([KeyFile(HERE / "a", 0o640, False), KeyFile(HERE / "b", 0o600, True)], ["problem", "problem"]),
        ([KeyFile(HERE / "a", 0o600, False), KeyFile(HERE / "c", 0o644, False, vital=False)], ["warning"]),
    ],
)
def test_key_files(files: list[KeyFile], verdicts: list[str]) -> None:
    assert [advised(it) for it in judge_key_files(files)] == verdicts


@pytest.mark.parametrize(
    ("database", "verdict"),
    [
        (Opened("x", "SQLite", HEAD, size_bytes=1), "ok"),
        (Opened("x", "PostgreSQL 17.2", None), "ok"),
        (Opened("x", "SQLite", "0000"), "warning"),
        (Opened("x", "SQLite", HEAD, unread=True), "warning"),
        (Opened("x", "SQLite", "9999"), "problem"),
        (Opened("x", "SQLite", "9999", readable_by="9998"), "problem"),
        (Opened("x", "SQLite", "9999", readable_by=HEAD), "warning"),
        (Opened("x", "SQLite", HEAD, damage="row 5 missing"), "problem"),
        (Unopened("x", "no route"), "problem"),
    ],
)
def test_database(database: Opened | Unopened, verdict: str) -> None:
    assert advised(judge_database(database)) == verdict


@pytest.mark.parametrize(
    ("whose", "verdict"), [(Port.FREE, "ok"), (Port.OURS, "ok"), (Port.TAKEN, "problem")]
)
def test_port(whose: Port, verdict: str) -> None:
    assert advised(judge_port("127.0.0.1:8080", whose)) == verdict


def visit(
    alive: Answer | None = None,
    *,
    health: Answer | None = None,
    version: str = __version__,
    keys: Answer | None = None,
) -> Visit:
    return Visit(
        "http://here",
        alive or Heard(200, {"status": "alive"}, 0, None),
        health or Heard(200, {"status": "healthy"}, 0, None),
        heard(info={"version": version}),
        keys,
    )


DEGRADED = {
    "status": "degraded",
    "dependencies": {"novita": {"status": "down"}, "database": {"status": "up"}},
}


@pytest.mark.parametrize(
    ("it", "expected", "verdict", "word"),
    [
        (visit(), False, "ok", "healthy"),
        (visit(version="9.9.9"), False, "warning", "9.9.9"),
        (visit(health=Heard(200, DEGRADED, 0, None)), False, "warning", "degraded"),
        (visit(health=Heard(503, {"status": "unhealthy"}, 0, None)), False, "problem", "unhealthy"),
        (visit(health=Silence("no answer in time")), False, "problem", "silent"),
        (visit(Silence("refused")), False, "warning", "no server runs"),
        (visit(Silence("refused")), True, "problem", "cannot be reached"),
        (visit(heard(200)), False, "problem", "something else"),
    ],
)
def test_server(it: Visit, expected: bool, verdict: str, word: str) -> None:
    finding = judge_server(it, expected=expected)
    assert advised(finding) == verdict
    assert word in finding.message


def test_a_server_that_is_unwell_says_why() -> None:
    state = DEGRADED | {"createsBlocked": "x", "collectorBraked": "y"}
    advice = judge_server(visit(health=Heard(200, state, 0, None)), expected=True).advice
    assert advice.startswith("novita is down; ")
    assert "database" not in advice
    assert "creates/resume" in advice
    assert "orphans resume" in advice


@pytest.mark.parametrize(
    ("keys", "verdict", "scope"),
    [
        (heard(200), "ok", "admin"),
        (heard(403, details={"scope": "write"}), "ok", "write"),
        (heard(401), "problem", None),
        (heard(429), "warning", None),
        (heard(500), "warning", None),
        (Silence("x"), "warning", None),
        (None, "problem", None),
    ],
)
def test_key(keys: Answer | None, verdict: str, scope: str | None) -> None:
    finding = judge_key(visit(keys=keys))
    assert (advised(finding), finding.facts.get("scope")) == (verdict, scope)
