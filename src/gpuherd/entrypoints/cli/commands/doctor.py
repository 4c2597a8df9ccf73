"""`gpuherd doctor`: what is well, what is not, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.output import JsonOption, Output, SilentOption, safe


class Verdict(StrEnum):
    """How bad it is; the later, the worse."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """What one check found. Where it is not well, `advice` says what to do."""

    check: str
    verdict: Verdict
    message: str
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


SETTINGS = "settings"
_STYLES = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "bold red"}


def doctor_command(examine: Callable[[], Sequence[Finding]]) -> Mapping[str, Callable[..., None]]:
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


def worst(findings: Sequence[Finding]) -> Verdict:
    """Return the verdict on the whole."""
    order = list(Verdict)
    return max((it.verdict for it in findings), key=order.index, default=Verdict.OK)


def exit_code_of(findings: Sequence[Finding]) -> ExitCode:
    """Return how the command ends: a script needs to know only whether there is a problem."""
    problems = [it for it in findings if it.verdict is Verdict.PROBLEM]
    if any(it.check == SETTINGS for it in problems):
        return ExitCode.CONFIGURATION
    return ExitCode.FAILED if problems else ExitCode.OK


def _as_json(it: Finding) -> dict[str, Any]:
    return {
        "check": it.check,
        "verdict": it.verdict.value,
        "message": it.message,
        "advice": it.advice or None,
        "facts": dict(it.facts),
    }


def _table(findings: Sequence[Finding]) -> Table:
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


def _summary(findings: Sequence[Finding]) -> str:
    counts = [sum(it.verdict is verdict for it in findings) for verdict in (Verdict.PROBLEM, Verdict.WARNING)]
    words = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in zip(counts, ("problem", "warning"), strict=True)
        if count
    ]
    return ", ".join(words) or "everything is well"
