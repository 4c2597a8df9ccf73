"""`gpuherd doctor`: what is well, what is not, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.commands.local.first_contact import (
    CannotLook,
    FirstContact,
    LiveOrder,
    run_first_contact,
)
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


LiveOption = Annotated[
    bool, typer.Option("--live", help="Check what gpuherd assumes about Novita, on the real service.")
]
SpendOption = Annotated[
    str | None,
    typer.Option(
        metavar="USD", help="Of --live: rent a machine for the paid checks if they cost at most this."
    ),
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Of --live: keep what was found there, without secrets; go on from it later."
    ),
]


def doctor_command(
    examine: Callable[[], Sequence[CheckResult]], first_contact: Callable[[], FirstContact]
) -> Mapping[str, Callable[..., None]]:
    """Return `gpuherd doctor`."""

    def doctor(
        live: LiveOption = False,
        yes_spend: SpendOption = None,
        report: ReportOption = None,
        as_json: JsonOption = False,
        quiet: SilentOption = False,
    ) -> None:
        """Check settings, Novita, clock, disk, database, port, server and keys, and say what to do.

        Exit code 0 if there is no problem (there may be warnings), 1 if there is one, 78 if it is in the
        settings.

        With --live: what gpuherd assumes about Novita is compared with what Novita does. The free checks
        only read. The paid ones rent the cheapest machine for some minutes, through the server that runs
        here: they are made if you say yes, or with --yes-spend. Exit code 0 if all that was seen is as
        assumed, 9 if something differs, 1 if the checks could not be made.
        """
        output = Output.for_command(as_json=as_json, quiet=quiet)
        if live:
            raise typer.Exit(int(_first_contact(first_contact, _order(yes_spend, report), output)))
        if yes_spend is not None or report is not None:
            raise typer.BadParameter("--yes-spend and --report belong to --live")
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


def _order(yes_spend: str | None, report: Path | None) -> LiveOrder:
    try:
        usd = None if yes_spend is None else Decimal(yes_spend)
    except InvalidOperation:
        usd = Decimal("NaN")
    if usd is not None and not (usd.is_finite() and usd >= 0):
        raise typer.BadParameter("say an amount in USD, such as 0.50", param_hint="--yes-spend")
    return LiveOrder(usd, report)


def _first_contact(contact: Callable[[], FirstContact], order: LiveOrder, output: Output) -> ExitCode:
    try:
        return run_first_contact(contact(), order, output)
    except CannotLook as cannot:
        if not output.silent:
            output.note(f"the checks cannot be made: {safe(cannot)}", "bold red")
        return cannot.exit_code


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
