"""`gpuherd doctor` tells what was found: to people, to programs, and with its exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest
from click.testing import CliRunner, Result

from gpuherd.entrypoints.cli.cli_output import Output
from gpuherd.entrypoints.cli.command_runner import CommandContext, local_command
from gpuherd.ops.doctor_results import CheckResult, Severity
from gpuherd.ops.operator_commands import print_findings
from tests.cli.support import InstantClock

WELL = CheckResult("port", Severity.OK, "it is free", facts={"port": 1})
SO_SO = CheckResult("clock", Severity.WARNING, "it is late", "set it")
BAD = CheckResult("database", Severity.PROBLEM, "it is damaged\x1b[31m", "put a copy back")
BAD_SETTING = CheckResult("settings", Severity.PROBLEM, "PORT: no number", "correct it")


def doctor(findings: Sequence[CheckResult], *, quiet: bool = False) -> Result:
    @local_command("doctor", silent=True)
    def command(output: Output) -> None:
        print_findings(output, findings)

    around = CommandContext(lambda: pytest.fail("the doctor finds its own way"), InstantClock(), Random(1))
    return CliRunner().invoke(command, ["-q"] if quiet else [], catch_exceptions=False, obj=around)


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
    assert [it["check"] for it in told["findings"]] == [it.check for it in findings]


def test_a_program_gets_every_word() -> None:
    assert json.loads(doctor([SO_SO]).stdout)["findings"] == [
        {"check": "clock", "verdict": "warning", "message": "it is late", "advice": "set it", "facts": {}}
    ]


def test_quiet_leaves_it_to_the_exit_code() -> None:
    result = doctor([BAD], quiet=True)
    assert (result.output, result.exit_code) == ("", 1)
