"""`gpuherd doctor` tells what was found: to people, to programs, and with its exit code."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner, Result

from gpuherd.client.server_address import Address
from gpuherd.entrypoints.cli.app import build_app
from gpuherd.entrypoints.cli.commands.local.doctor import CheckResult, Severity, doctor_command, exit_code_of
from gpuherd.entrypoints.cli.commands.local.first_contact import FirstContact
from tests.entrypoints.cli.support import InstantClock, nothing

WELL = CheckResult("port", Severity.OK, "it is free", facts={"port": 1})
SO_SO = CheckResult("clock", Severity.WARNING, "it is late", "set it")
BAD = CheckResult("database", Severity.PROBLEM, "it is damaged\x1b[31m", "put a copy back")
BAD_SETTING = CheckResult("settings", Severity.PROBLEM, "PORT: no number", "correct it")


def no_contact() -> FirstContact:
    raise AssertionError("nobody asked for it")


def doctor(findings: Sequence[CheckResult], *options: str) -> Result:
    def connect() -> Address:
        raise AssertionError("the doctor finds its own way")

    app = build_app(
        connect=connect,
        clock=InstantClock(),
        rng=random.Random(1),
        serve=nothing,
        simulator=nothing,
        demo=nothing,
        more=doctor_command(lambda: findings, no_contact),
    )
    return CliRunner().invoke(app, ["doctor", *options], catch_exceptions=False)


@pytest.mark.parametrize(
    ("findings", "verdict", "exit_code"),
    [
        ([], "ok", 0),
        ([WELL], "ok", 0),
        ([WELL, SO_SO], "warning", 0),
        ([SO_SO, BAD, WELL], "problem", 1),
        ([BAD, BAD_SETTING], "problem", 78),
    ],
)
def test_the_worst_finding_decides(findings: list[CheckResult], verdict: str, exit_code: int) -> None:
    result = doctor(findings)
    told = json.loads(result.stdout)
    assert (told["verdict"], result.exit_code) == (verdict, exit_code)
    assert exit_code_of(findings) == exit_code
    assert [it["check"] for it in told["findings"]] == [it.check for it in findings]


def test_a_program_gets_every_word() -> None:
    assert json.loads(doctor([SO_SO]).stdout)["findings"] == [
        {"check": "clock", "verdict": "warning", "message": "it is late", "advice": "set it", "facts": {}}
    ]


def test_the_exit_codes_are_in_the_help() -> None:
    assert "78" in doctor([], "--help").stdout
