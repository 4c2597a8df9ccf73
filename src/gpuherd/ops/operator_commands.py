"""The commands that examine this installation: config, doctor, doctor --live."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Protocol

import click
from rich.table import Table
from rich.text import Text

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.entrypoints.cli.cli_output import Column, Output, safe
from gpuherd.entrypoints.cli.command_runner import is_interactive, local_command
from gpuherd.ops.config import Setting, configuration
from gpuherd.ops.doctor_results import (
    SETTINGS,
    Agreement,
    CannotLook,
    CheckResult,
    LiveFinding,
    Quote,
    Rented,
    Severity,
)
from gpuherd.ops.startup import usable_settings

UNSET = "-"
_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}


# --- config ---


@local_command("config")
def config(output: Output) -> None:
    """Show every setting: its value, where it comes from, what it means. Secrets are shown as ***."""
    usable_settings()
    found = configuration()
    if not output.for_people:
        settings = [
            {
                "name": setting.name,
                "value": setting.value,
                "source": setting.source,
                "secret": setting.is_secret,
                "meaning": setting.meaning,
            }
            for setting in found.settings
        ]
        output.json({"file": str(found.file), "fileExists": found.file_exists, "settings": settings})
        return
    columns = [
        Column("SETTING", lambda row: str(row.name), 0),
        Column(
            "VALUE", lambda row: str(row.value or UNSET), 0, shrinks_to=30, wraps=True, style=_setting_style
        ),
        Column("FROM", lambda row: str(row.source), 1, style=_setting_style),
        Column("MEANING", lambda row: str(row.meaning), 2, shrinks_to=20, wraps=True),
    ]
    output.table(columns, found.settings)
    there = "" if found.file_exists else ", which is not there"
    output.note(f"Each may be set in the environment, or else in {safe(found.file)}{there}.", "dim")


def _setting_style(setting: Setting) -> str:
    return "dim" if setting.is_default else "green"


# --- doctor ---


@local_command(
    "doctor",
    click.option(
        "--live", is_flag=True, help="Check what gpuherd assumes about Novita, on the real service."
    ),
    click.option(
        "--yes-spend",
        metavar="USD",
        help="Of --live: rent a machine for the paid checks if they cost at most this.",
    ),
    click.option(
        "--report",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Of --live: keep what was found there, without secrets; go on from it later.",
    ),
    silent=True,
)
def doctor(output: Output, live: bool, yes_spend: str | None, report: Path | None) -> None:
    """Check settings, Novita, clock, disk, database, port, server and keys, and say what to do.

    Exit code 0 if there is no problem (there may be warnings), 1 if there is one, 78 if it is in the
    settings.

    With --live: what gpuherd assumes about Novita is compared with what Novita does. The free checks
    only read. The paid ones rent the cheapest machine for some minutes, through the server that runs
    here: they are made if you say yes, or with --yes-spend. Exit code 0 if all that was seen is as
    assumed, 9 if something differs, 1 if the checks could not be made.
    """
    if live:
        raise click.exceptions.Exit(int(_run_live(output, _order(yes_spend, report))))
    if yes_spend is not None or report is not None:
        raise click.BadParameter("--yes-spend and --report belong to --live")
    # The checks load the adapters, which `gpuherd config` does not need.
    from gpuherd.ops.doctor import examine  # noqa: PLC0415

    print_findings(output, examine(SystemClock()))


def print_findings(output: Output, findings: Sequence[CheckResult]) -> None:
    """Print the findings, and end with the exit code of the worst."""
    if output.for_people:
        output.show(_table(findings))
        output.note(_summary(findings), _STYLES[worst(findings)])
    elif not output.silent:
        output.json(
            {"verdict": worst(findings).value, "findings": [_as_json(finding) for finding in findings]}
        )
    raise click.exceptions.Exit(int(exit_code_of(findings)))


def _order(yes_spend: str | None, report: Path | None) -> LiveOrder:
    try:
        usd = None if yes_spend is None else Decimal(yes_spend)
    except InvalidOperation:
        usd = Decimal("NaN")
    if usd is not None and not (usd.is_finite() and usd >= 0):
        raise click.BadParameter("say an amount in USD, such as 0.50", param_hint="--yes-spend")
    return LiveOrder(usd, report)


def worst(findings: Sequence[CheckResult]) -> Severity:
    """Return the worst severity."""
    order = list(Severity)
    return max((finding.verdict for finding in findings), key=order.index, default=Severity.OK)


def exit_code_of(findings: Sequence[CheckResult]) -> ExitCode:
    """Return the exit code: scripts only need to know whether there is a problem."""
    problems = [finding for finding in findings if finding.verdict is Severity.PROBLEM]
    if any(finding.check == SETTINGS for finding in problems):
        return ExitCode.CONFIGURATION
    return ExitCode.FAILED if problems else ExitCode.OK


def _as_json(finding: CheckResult) -> dict[str, Any]:
    return {
        "check": finding.check,
        "verdict": finding.verdict.value,
        "message": finding.message,
        "advice": finding.advice or None,
        "facts": dict(finding.facts),
    }


def _table(findings: Sequence[CheckResult]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for finding in findings:
        words = Text(safe(finding.message))
        if finding.advice:
            words.append(f"\ndo: {safe(finding.advice)}", "cyan")
        grid.add_row(Text(finding.verdict.value, _STYLES[finding.verdict]), safe(finding.check), words)
    return grid


def _summary(findings: Sequence[CheckResult]) -> str:
    counts = [
        sum(finding.verdict is verdict for finding in findings)
        for verdict in (Severity.PROBLEM, Severity.WARNING)
    ]
    words = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in zip(counts, ("problem", "warning"), strict=True)
        if count
    ]
    return ", ".join(words) or "everything is well"


# --- doctor --live ---


def _run_live(output: Output, order: LiveOrder) -> ExitCode:
    # The live checks load the adapter of Novita, which `gpuherd config` does not need.
    from gpuherd.ops.live_rental_checks import LiveContact  # noqa: PLC0415

    try:
        return run_live_checks(LiveContact(usable_settings(), SystemClock()), order, output)
    except CannotLook as cannot:
        if not output.silent:
            output.note(f"the checks cannot be made: {safe(cannot)}", "bold red")
        return cannot.exit_code


class LiveChecks(Protocol):
    """The live checks. Each method raises `CannotLook` if it cannot be made."""

    def look(self, earlier_machine: Mapping[str, Any] | None) -> Sequence[LiveFinding]:
        """Make the free checks, and check the bill of an earlier machine if there is one."""
        ...

    def quote(self) -> Quote:
        """Return the maximum cost of the paid checks."""
        ...

    def rent(self, quote: Quote, tell: Callable[[str], None]) -> Rented:
        """Make the paid checks and end their rental."""
        ...

    def heading(self) -> Mapping[str, Any]:
        """Return the first fields of a report."""
        ...


@dataclass(frozen=True)
class LiveOrder:
    """What the user wants besides the free checks."""

    yes_spend: Decimal | None = None
    report: Path | None = None


_VERDICT_STYLES = {Agreement.AS_ASSUMED: "green", Agreement.DIFFERS: "bold yellow", Agreement.NOT_SEEN: "dim"}
NOTHING_RENTED = "nothing was rented"


@dataclass(frozen=True)
class _Paid:
    """The result of the paid checks, if they were made."""

    rented: Rented | None = None
    quoted_usd: Decimal | None = None
    # Why they were not made completely, although the user wanted them.
    failed: str | None = None
    free_shown: bool = False

    @property
    def as_json(self) -> dict[str, Any]:
        usd = None if self.quoted_usd is None else str(self.quoted_usd)
        return {"rented": self.rented is not None, "quotedUsd": usd, "failed": self.failed}


def run_live_checks(contact: LiveChecks, order: LiveOrder, output: Output) -> ExitCode:
    """Make the checks, ask before anything is paid for, and print the findings."""
    earlier = _earlier_report(order.report)
    machine = earlier.get("machine")
    findings = list(contact.look(machine if isinstance(machine, dict) else None))
    paid = _paid(contact, order, output, findings)
    if paid.rented is not None:
        findings = merged(findings, paid.rented.findings)
        machine = paid.rented.machine or machine
    findings = merged([_finding_of(row) for row in earlier.get("findings", ())], findings)
    body = {**contact.heading(), **report_of(findings), "spend": paid.as_json, "machine": machine}
    if order.report is not None:
        _write(order.report, body)
    if output.for_people:
        if paid.rented is not None or not paid.free_shown:
            output.show(_live_table(findings))
        for line in settings_of(findings):
            output.note(f"set {safe(line)}", "cyan")
        output.note(_live_summary(findings))
    elif not output.silent:
        output.json(body)
    return live_exit_code(findings) if paid.failed is None else ExitCode.FAILED


def _paid(contact: LiveChecks, order: LiveOrder, output: Output, free: Sequence[LiveFinding]) -> _Paid:
    """Make the paid checks if the user has agreed to their price."""

    def tell(line: str) -> None:
        if not output.silent:
            output.note(safe(line))

    try:
        quote = contact.quote()
    except CannotLook as cannot:
        tell(f"the paid checks cannot be made: {cannot}; {NOTHING_RENTED}")
        return _Paid(failed=None if order.yes_spend is None else str(cannot))
    # guard: the doctor spends no more than was agreed
    if order.yes_spend is not None and quote.usd > order.yes_spend:
        failed = f"they may cost {quote.usd} USD, which is more than --yes-spend {order.yes_spend}"
        tell(f"{failed}; {NOTHING_RENTED}")
        return _Paid(quoted_usd=quote.usd, failed=failed)
    asks = order.yes_spend is None and output.for_people and is_interactive()
    if order.yes_spend is None and not asks:
        how = f"to make them: gpuherd doctor --live --yes-spend {quote.usd}"
        tell(f"{NOTHING_RENTED}: the paid checks cost at most {quote.usd} USD; {how}")
        return _Paid(quoted_usd=quote.usd)
    if asks:
        output.show(_live_table(free))
        tell(quote.explanation)
        if not click.confirm(f"Spend at most {quote.usd} USD for the paid checks?", err=True):
            tell(NOTHING_RENTED)
            return _Paid(quoted_usd=quote.usd, free_shown=True)
    try:
        rented = contact.rent(quote, tell)
    except CannotLook as cannot:
        tell(f"the paid checks cannot be made: {cannot}")
        return _Paid(quoted_usd=quote.usd, failed=str(cannot), free_shown=asks)
    if rented.broke_off is not None:
        tell(f"the paid checks broke off: {rented.broke_off}")
    return _Paid(rented, quote.usd, rented.broke_off, free_shown=asks)


def merged(before: Sequence[LiveFinding], after: Sequence[LiveFinding]) -> list[LiveFinding]:
    """Return the later findings, and earlier ones that have no later one."""
    found = {finding.check: finding for finding in before}
    for finding in after:
        if finding.verdict is not Agreement.NOT_SEEN or finding.check not in found:
            found[finding.check] = finding
    return list(found.values())


def live_exit_code(findings: Sequence[LiveFinding]) -> ExitCode:
    """Return the exit code: scripts need to know whether anything differs."""
    differs = any(finding.verdict is Agreement.DIFFERS for finding in findings)
    return ExitCode.DIFFERS if differs else ExitCode.OK


def settings_of(findings: Sequence[LiveFinding]) -> list[str]:
    """Return the recommended settings, each once."""
    return list(dict.fromkeys(line for finding in findings for line in finding.settings))


def report_of(findings: Sequence[LiveFinding]) -> dict[str, Any]:
    """Return the findings for programs."""
    differs = live_exit_code(findings) is ExitCode.DIFFERS
    return {
        "verdict": (Agreement.DIFFERS if differs else Agreement.AS_ASSUMED).value,
        "findings": [_finding_json(finding) for finding in findings],
        "settings": settings_of(findings),
    }


def _finding_json(finding: LiveFinding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "assumed": finding.assumed,
        "seen": finding.seen,
        "verdict": finding.verdict.value,
        "changes": finding.changes or None,
        "settings": list(finding.settings),
        "facts": dict(finding.facts),
    }


def _finding_of(row: Any) -> LiveFinding:
    row = row if isinstance(row, dict) else {}
    known = {verdict.value for verdict in Agreement}
    return LiveFinding(
        str(row.get("check")),
        str(row.get("assumed")),
        str(row.get("seen")),
        Agreement(row["verdict"]) if row.get("verdict") in known else Agreement.NOT_SEEN,
        str(row.get("changes") or ""),
        tuple(str(line) for line in row.get("settings") or ()),
        dict(row.get("facts") or {}),
    )


def _earlier_report(path: Path | None) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    try:
        body = json.loads(path.read_text())
    except (OSError, ValueError):
        body = None
    if not isinstance(body, dict) or "findings" not in body:
        raise click.BadParameter(f"{path} is there and no report of the doctor", param_hint="--report")
    return body


def _write(path: Path, body: Mapping[str, Any]) -> None:
    """Replace the report file completely. Only its owner may read it."""
    made = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(body, file, indent=2)
            file.write("\n")
        made.replace(path)
    except OSError as error:
        raise CannotLook(f"the report cannot be written to {path}: {error.strerror}") from None


def _live_table(findings: Sequence[LiveFinding]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for finding in findings:
        words = Text(f"assumed: {safe(finding.assumed)}\nseen: {safe(finding.seen)}")
        if finding.verdict is Agreement.DIFFERS:
            words.append(f"\nchanges: {safe(finding.changes)}", "cyan")
        grid.add_row(
            Text(finding.verdict.value, _VERDICT_STYLES[finding.verdict]), safe(finding.check), words
        )
    return grid


def _live_summary(findings: Sequence[LiveFinding]) -> str:
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Agreement}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
