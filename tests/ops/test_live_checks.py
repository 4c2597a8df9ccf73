"""`gpuherd doctor --live` tells what differs, spends only what was agreed, and keeps a report."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.entrypoints.cli.cli_output import Mode, Output
from gpuherd.entrypoints.cli.command_runner import CommandContext, local_command
from gpuherd.ops import operator_commands
from gpuherd.ops.doctor_results import (
    Agreement,
    CannotLook,
    LiveFinding,
    Quote,
    Rented,
)
from gpuherd.ops.operator_commands import LiveOrder, run_live_checks
from tests.cli.support import CLI, InstantClock

HOLDS = LiveFinding("list.form", "rows", "rows", Agreement.AS_ASSUMED)
DIFFERS = LiveFinding("list.lag", "soon", "late", Agreement.DIFFERS, "waits", ("GPUHERD_CREATE_SETTLE=430",))
UNSEEN = LiveFinding("bill.span", "pulling", "no rows yet", Agreement.NOT_SEEN)
MACHINE = {"cloudInstanceId": "5f0c9b1d2e3a4f60"}


class FakeContact:
    """Finds what it is told to, and remembers what was rented."""

    def __init__(self, free: Sequence[LiveFinding], paid: Sequence[LiveFinding] = (), usd: str = "0.06"):
        self.free, self.paid, self.usd = free, paid, usd
        self.rented = 0
        self.earlier: Mapping[str, Any] | None = None
        self.cannot: CannotLook | None = None

    def look(self, earlier_machine: Mapping[str, Any] | None) -> Sequence[LiveFinding]:
        if self.cannot is not None:
            raise self.cannot
        self.earlier = earlier_machine
        return self.free

    def quote(self) -> Quote:
        return Quote(Decimal(self.usd), "the cheapest machine for half an hour")

    def rent(self, quote: Quote, tell: Callable[[str], None]) -> Rented:
        self.rented += 1
        return Rented(self.paid, MACHINE)

    def heading(self) -> Mapping[str, Any]:
        return {"gpuherd": "0"}


def doctor(checks: FakeContact, yes_spend: str | None = None, report: Path | None = None) -> Result:
    @local_command("doctor")
    def command(output: Output) -> None:
        usd = None if yes_spend is None else Decimal(yes_spend)
        raise click.exceptions.Exit(int(run_live_checks(checks, LiveOrder(usd, report), output)))

    around = CommandContext(lambda: pytest.fail("the doctor finds its own way"), InstantClock(), Random(1))
    return CliRunner().invoke(command, [], catch_exceptions=False, obj=around)


@pytest.mark.parametrize(
    ("findings", "exit_code"),
    [([HOLDS, UNSEEN], ExitCode.OK), ([HOLDS, DIFFERS], ExitCode.DIFFERS)],
)
def test_the_exit_code_tells_whether_something_differs(
    findings: list[LiveFinding], exit_code: ExitCode
) -> None:
    result = doctor(FakeContact(findings))
    assert result.exit_code == exit_code
    told = json.loads(result.stdout)
    assert [it["check"] for it in told["findings"]] == [it.check for it in findings]


def test_without_a_word_about_money_nothing_is_rented_and_that_is_said() -> None:
    contact = FakeContact([HOLDS])
    result = doctor(contact)
    assert contact.rented == 0
    assert "nothing was rented" in result.stderr
    assert "--yes-spend 0.06" in result.stderr


@pytest.mark.proves("E8")
def test_more_than_was_agreed_is_not_spent() -> None:
    contact = FakeContact([HOLDS], usd="0.51")
    result = doctor(contact, "0.50")
    assert (contact.rented, result.exit_code) == (0, ExitCode.FAILED)
    assert json.loads(result.stdout)["spend"]["rented"] is False


def test_the_paid_checks_are_made_for_who_agrees_to_their_price() -> None:
    contact = FakeContact([HOLDS], [DIFFERS])
    result = doctor(contact, "0.06")
    told = json.loads(result.stdout)
    assert (contact.rented, result.exit_code) == (1, ExitCode.DIFFERS)
    assert told["settings"] == ["GPUHERD_CREATE_SETTLE=430"]
    assert told["spend"] == {"rented": True, "quotedUsd": "0.06", "failed": None}


def test_a_report_is_gone_on_from(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    doctor(FakeContact([HOLDS], [DIFFERS, UNSEEN]), "1", file)
    assert file.stat().st_mode & 0o077 == 0
    later = FakeContact([HOLDS, LiveFinding("bill.span", "pulling", "153 s", Agreement.AS_ASSUMED)])
    result = doctor(later, report=file)
    assert later.earlier == MACHINE
    verdicts = {it["check"]: it["verdict"] for it in json.loads(file.read_text())["findings"]}
    assert verdicts == {"list.form": "as assumed", "list.lag": "differs", "bill.span": "as assumed"}
    assert result.exit_code == ExitCode.DIFFERS


def test_a_file_that_is_no_report_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    result = doctor(FakeContact([HOLDS]), report=file)
    assert (result.exit_code, file.read_text()) == (ExitCode.USAGE, "mine")


@pytest.mark.parametrize("options", [("--yes-spend", "1"), ("--live", "--yes-spend", "much")])
def test_options_that_make_no_sense_are_refused(options: tuple[str, ...]) -> None:
    assert CliRunner().invoke(CLI, ["doctor", *options]).exit_code == ExitCode.USAGE


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked_for_the_sum_after_the_free_findings(
    monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    asked: list[str] = []

    def confirm(question: str, *, err: bool) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr(operator_commands, "is_interactive", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    screen = io.StringIO()
    contact = FakeContact([HOLDS], [DIFFERS])
    code = run_live_checks(contact, LiveOrder(), Output(Mode.PEOPLE, InstantClock(), (screen, screen)))
    assert (len(asked), "0.06 USD" in asked[0], contact.rented) == (1, True, int(answer))
    assert code == (ExitCode.DIFFERS if answer else ExitCode.OK)
    told = screen.getvalue()
    assert "the cheapest machine for half an hour" in told
    assert ("set GPUHERD_CREATE_SETTLE=430" in told, "changes: waits" in told) == (answer, answer)
    assert ("nothing was rented" in told) != answer
