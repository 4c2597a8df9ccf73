"""What each finding means and what to do about it, case by case, without asking anybody."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuherd import __version__
from gpuherd.adapters.sql.schema_migration import newest_schema
from gpuherd.ops.doctor_local_checks import (
    DirectoryFacts,
    KeyFileFacts,
    OpenedDatabase,
    PortOwner,
    UnopenedDatabase,
    judge_database,
    judge_directory,
    judge_key_files,
    judge_port,
)
from gpuherd.ops.doctor_results import CheckResult, judge_clock, judge_settings, judge_unknown_variables
from gpuherd.ops.doctor_server_checks import (
    Answer,
    HttpAnswer,
    NoAnswer,
    ServerAnswers,
    judge_cloud,
    judge_key,
    judge_server,
)
from gpuherd.settings import SettingSource

HERE = Path("/data")
GB = 1_000_000_000


def heard(status: int = 200, *, took_s: float = 0.1, **body: Any) -> HttpAnswer:
    return HttpAnswer(status, body, took_s, timedelta(0))


def advised(finding: CheckResult) -> str:
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
        (NoAnswer("the host name cannot be resolved"), "problem", "cannot be resolved"),
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
    sources = {"GPUHERD_PORT": SettingSource.ENVIRONMENT, "LOG_LEVEL": SettingSource.FILE}
    findings = judge_settings(problems, sources)
    assert [advised(it) for it in findings] == ["problem"] * 3
    assert "comes from the environment" in findings[0].message
    assert "comes from gpuherd.toml" in findings[1].message
    assert findings[2].message == problems[2]


def test_settings_without_a_problem() -> None:
    (finding,) = judge_settings([], {"LOG_LEVEL": SettingSource.FILE, "GPUHERD_PORT": SettingSource.DEFAULT})
    assert (advised(finding), finding.message) == ("ok", "1 set, the rest as by default")


def test_a_misspelt_variable_is_named_with_what_was_meant() -> None:
    findings = judge_unknown_variables(["GPUHERD_PROT", "NOVITA_ZZZZZZZZZZZZZZZZZZ"])
    assert [advised(it) for it in findings] == ["warning", "warning"]
    assert [it.advice for it in findings] == ["did you mean GPUHERD_PORT?", "take it out"]


@pytest.mark.parametrize(
    ("directory", "verdict"),
    [
        (DirectoryFacts(HERE, True, True, 0o700, 9 * GB), "ok"),
        (DirectoryFacts(HERE, False, True, 0o755, 9 * GB), "ok"),
        (DirectoryFacts(HERE, True, True, 0o750, 9 * GB), "warning"),
        (DirectoryFacts(HERE, True, True, 0o700, GB // 2), "warning"),
        (DirectoryFacts(HERE, True, True, 0o700, GB // 20), "problem"),
        (DirectoryFacts(HERE, True, False, 0o700, 9 * GB), "problem"),
    ],
)
def test_data_directory(directory: DirectoryFacts, verdict: str) -> None:
    assert advised(judge_directory(directory)) == verdict


@pytest.mark.parametrize(
    ("files", "verdicts"),
    [
        ([], ["ok"]),
        ([KeyFileFacts(HERE / "a", 0o600, False)], ["ok"]),
        (
            [KeyFileFacts(HERE / "a", 0o640, False), KeyFileFacts(HERE / "b", 0o600, True)],
            ["problem", "problem"],
        ),
        (
            [KeyFileFacts(HERE / "a", 0o600, False), KeyFileFacts(HERE / "c", 0o644, False, required=False)],
            ["warning"],
        ),
    ],
)
def test_key_files(files: list[KeyFileFacts], verdicts: list[str]) -> None:
    assert [advised(it) for it in judge_key_files(files)] == verdicts


@pytest.mark.parametrize(
    ("database", "verdict"),
    [
        (OpenedDatabase("x", "SQLite", newest_schema(), size_bytes=1), "ok"),
        (OpenedDatabase("x", "PostgreSQL 17.2", None), "ok"),
        (OpenedDatabase("x", "SQLite", "0000"), "warning"),
        (OpenedDatabase("x", "SQLite", newest_schema(), not_fully_read=True), "warning"),
        (OpenedDatabase("x", "SQLite", "9999"), "problem"),
        (OpenedDatabase("x", "SQLite", newest_schema(), damage="row 5 missing"), "problem"),
        (UnopenedDatabase("x", "no route"), "problem"),
    ],
)
def test_database(database: OpenedDatabase | UnopenedDatabase, verdict: str) -> None:
    assert advised(judge_database(database)) == verdict


@pytest.mark.parametrize(
    ("whose", "verdict"), [(PortOwner.FREE, "ok"), (PortOwner.OURS, "ok"), (PortOwner.TAKEN, "problem")]
)
def test_port(whose: PortOwner, verdict: str) -> None:
    assert advised(judge_port("127.0.0.1:8080", whose)) == verdict


def answers(
    alive: Answer | None = None,
    *,
    health: Answer | None = None,
    version: str = __version__,
    keys: Answer | None = None,
) -> ServerAnswers:
    return ServerAnswers(
        "http://here",
        alive or HttpAnswer(200, {"status": "alive"}, 0, None),
        health or HttpAnswer(200, {"status": "healthy"}, 0, None),
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
        (answers(), False, "ok", "healthy"),
        (answers(version="9.9.9"), False, "warning", "9.9.9"),
        (answers(health=HttpAnswer(200, DEGRADED, 0, None)), False, "warning", "degraded"),
        (answers(health=HttpAnswer(503, {"status": "unhealthy"}, 0, None)), False, "problem", "unhealthy"),
        (answers(health=NoAnswer("no answer in time")), False, "problem", "silent"),
        (answers(NoAnswer("refused")), False, "warning", "no server runs"),
        (answers(NoAnswer("refused")), True, "problem", "cannot be reached"),
        (answers(heard(200)), False, "problem", "something else"),
    ],
)
def test_server(it: ServerAnswers, expected: bool, verdict: str, word: str) -> None:
    finding = judge_server(it, expected=expected)
    assert advised(finding) == verdict
    assert word in finding.message


def test_a_server_that_is_unwell_says_why() -> None:
    state = DEGRADED | {"createsBlocked": "x", "collectorBraked": "y"}
    advice = judge_server(answers(health=HttpAnswer(200, state, 0, None)), expected=True).advice
    assert advice.startswith("novita is down; ")
    assert "database" not in advice
    assert "gpuherd creates resume" in advice
    assert "orphans resume" in advice


@pytest.mark.parametrize(
    ("keys", "verdict", "scope"),
    [
        (heard(200), "ok", "admin"),
        (heard(403, details={"scope": "write"}), "ok", "write"),
        (heard(401), "problem", None),
        (heard(429), "warning", None),
        (heard(500), "warning", None),
        (NoAnswer("x"), "warning", None),
        (None, "problem", None),
    ],
)
def test_key(keys: Answer | None, verdict: str, scope: str | None) -> None:
    finding = judge_key(answers(keys=keys))
    assert (advised(finding), finding.facts.get("scope")) == (verdict, scope)
