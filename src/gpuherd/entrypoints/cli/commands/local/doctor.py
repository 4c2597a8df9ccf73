"""`gpuherd doctor`: what is well, what is not, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.render.output import JsonOption, Output, SilentOption, safe
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode


class Severity(StrEnum):
    """How bad it is; the later, the worse."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class CheckResult:
    """What one check found. Where it is not well, `advice` says what to do."""

    check: str
    verdict: Severity
    message: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


SETTINGS = "settings"
_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}


def doctor_command(examine: Callable[[], Sequence[CheckResult]]) -> Mapping[str, Callable[..., None]]:
    """Return `gpuherd doctor`."""

    def doctor(as_json: JsonOption = False, quiet: SilentOption = False) -> None:
        """Check settings, Novita, clock, disk, database, port, server and keys, and say what to do.

        Exit code 0 if there is no problem (there may be warnings), 1 if there is one, 78 if it is in the
        settings.
        """
        output = Output.for_command(as_json=as_json, quiet=quiet)
        findings = examine()
        if output.silent:
            raise typer.Exit(int(exit_code_of(findings)))
        if output.for_people:
            output.show(_table(findings))
            output.note(_summary(findings), _STYLES[worst(findings)])
        else:
            output.json({"verdict": worst(findings).value, "findings": [_as_json(it) for it in findings]})
        raise typer.Exit(int(exit_code_of(findings)))

    return {"doctor": doctor}


def worst(findings: Sequence[CheckResult]) -> Severity:
    """Return the verdict on the whole."""
    order = list(Severity)
    return max((it.verdict for it in findings), key=order.index, default=Severity.OK)


def exit_code_of(findings: Sequence[CheckResult]) -> ExitCode:
    """Return how the command ends: a script needs to know only whether there is a problem."""
    problems = [it for it in findings if it.verdict is Severity.PROBLEM]
    if any(it.check == SETTINGS for it in problems):
        return ExitCode.CONFIGURATION
    return ExitCode.FAILED if problems else ExitCode.OK


def _as_json(it: CheckResult) -> dict[str, Any]:
    return {
        "check": it.check,
        "verdict": it.verdict.value,
        "message": it.message,
        "advice": it.advice or None,
        "facts": dict(it.facts),
    }


def _table(findings: Sequence[CheckResult]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for it in findings:
        words = Text(safe(it.message))
        if it.advice:
            words.append(f"\ndo: {safe(it.advice)}", "cyan")
        grid.add_row(Text(it.verdict.value, _STYLES[it.verdict]), safe(it.check), words)
    return grid


def _summary(findings: Sequence[CheckResult]) -> str:
    counts = [
        sum(it.verdict is verdict for it in findings) for verdict in (Severity.PROBLEM, Severity.WARNING)
    ]
    words = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in zip(counts, ("problem", "warning"), strict=True)
        if count
    ]
    return ", ".join(words) or "everything is well"
