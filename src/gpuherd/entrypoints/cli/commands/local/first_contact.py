"""`gpuherd doctor --live`: what gpuherd assumes about Novita, what Novita does, and what follows from it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.render.output import Output, safe
from gpuherd.entrypoints.cli.runtime.confirm import is_interactive
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode


class Agreement(StrEnum):
    """Whether Novita does what gpuherd assumes."""

    AS_ASSUMED = "as assumed"
    DIFFERS = "differs"
    NOT_SEEN = "not seen"


@dataclass(frozen=True)
class LiveFinding:
    """One assumption, and what was seen of it. `changes` says what a difference means for the service."""

    check: str
    assumed: str
    seen: str
    verdict: Agreement
    changes: str = ""
    # Settings that follow, as `NAME=value`.
    settings: tuple[str, ...] = ()
    # For programs; nothing in it is secret, and nothing names the account's other machines.
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Quote:
    """What the paid checks cost at most, whatever becomes of the doctor."""

    usd: Decimal
    explanation: str


@dataclass(frozen=True)
class Rented:
    """What the paid checks found; `machine` is what a later look at the bill needs."""

    findings: Sequence[LiveFinding]
    machine: Mapping[str, Any] | None = None
    # Why not everything could be looked at, if so.
    broke_off: str | None = None


class CannotLook(Exception):
    """The checks could not be made; the message says why and what to do."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class FirstContact(Protocol):
    """The checks themselves; each method raises `CannotLook` where it cannot be made."""

    def look(self, earlier_machine: Mapping[str, Any] | None) -> Sequence[LiveFinding]:
        """Make the free checks; with the bill of a machine of an earlier run, if there was one."""
        ...

    def quote(self) -> Quote:
        """Say what the paid checks cost at most."""
        ...

    def rent(self, quote: Quote, tell: Callable[[str], None]) -> Rented:
        """Make the paid checks, and end what was rented for them."""
        ...

    def heading(self) -> Mapping[str, Any]:
        """Return what a report begins with."""
        ...


@dataclass(frozen=True)
class LiveOrder:
    """What the user wants besides the free checks."""

    yes_spend: Decimal | None = None
    report: Path | None = None


_STYLES = {Agreement.AS_ASSUMED: "green", Agreement.DIFFERS: "bold yellow", Agreement.NOT_SEEN: "dim"}
NOTHING_RENTED = "nothing was rented"


@dataclass(frozen=True)
class _Paid:
    """How the paid checks went, if they were made at all."""

    rented: Rented | None = None
    quoted_usd: Decimal | None = None
    # Why they were not made, or not to the end, although somebody wanted them.
    failed: str | None = None
    free_shown: bool = False

    @property
    def as_json(self) -> dict[str, Any]:
        usd = None if self.quoted_usd is None else str(self.quoted_usd)
        return {"rented": self.rented is not None, "quotedUsd": usd, "failed": self.failed}


def run_first_contact(contact: FirstContact, order: LiveOrder, output: Output) -> ExitCode:
    """Make the checks, ask before anything is paid for, and tell what was found."""
    earlier = _earlier_report(order.report)
    machine = earlier.get("machine")
    findings = list(contact.look(machine if isinstance(machine, dict) else None))
    paid = _paid(contact, order, output, findings)
    if paid.rented is not None:
        findings = merged(findings, paid.rented.findings)
        machine = paid.rented.machine or machine
    findings = merged([_from_json(it) for it in earlier.get("findings", ())], findings)
    body = {**contact.heading(), **report_of(findings), "spend": paid.as_json, "machine": machine}
    if order.report is not None:
        _write(order.report, body)
    if output.for_people:
        if paid.rented is not None or not paid.free_shown:
            output.show(_table(findings))
        for line in settings_of(findings):
            output.note(f"set {safe(line)}", "cyan")
        output.note(_summary(findings))
    elif not output.silent:
        output.json(body)
    return exit_code_of(findings) if paid.failed is None else ExitCode.FAILED


def _paid(contact: FirstContact, order: LiveOrder, output: Output, free: Sequence[LiveFinding]) -> _Paid:
    """Make the paid checks where somebody has agreed to their price."""

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
        output.show(_table(free))
        tell(quote.explanation)
        if not typer.confirm(f"Spend at most {quote.usd} USD for the paid checks?", err=True):
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
    """Return the later findings, and the earlier ones where nothing was seen later."""
    found = {it.check: it for it in before}
    for it in after:
        if it.verdict is not Agreement.NOT_SEEN or it.check not in found:
            found[it.check] = it
    return list(found.values())


def exit_code_of(findings: Sequence[LiveFinding]) -> ExitCode:
    """Return how the command ends: a script needs to know whether anything differs."""
    differs = any(it.verdict is Agreement.DIFFERS for it in findings)
    return ExitCode.DIFFERS if differs else ExitCode.OK


def settings_of(findings: Sequence[LiveFinding]) -> list[str]:
    """Return the settings that follow, each once."""
    return list(dict.fromkeys(line for it in findings for line in it.settings))


def report_of(findings: Sequence[LiveFinding]) -> dict[str, Any]:
    """Return the findings for programs."""
    differs = exit_code_of(findings) is ExitCode.DIFFERS
    return {
        "verdict": (Agreement.DIFFERS if differs else Agreement.AS_ASSUMED).value,
        "findings": [_as_json(it) for it in findings],
        "settings": settings_of(findings),
    }


def _as_json(it: LiveFinding) -> dict[str, Any]:
    return {
        "check": it.check,
        "assumed": it.assumed,
        "seen": it.seen,
        "verdict": it.verdict.value,
        "changes": it.changes or None,
        "settings": list(it.settings),
        "facts": dict(it.facts),
    }


def _from_json(row: Any) -> LiveFinding:
    row = row if isinstance(row, dict) else {}
    known = {it.value for it in Agreement}
    return LiveFinding(
        str(row.get("check")),
        str(row.get("assumed")),
        str(row.get("seen")),
        Agreement(row["verdict"]) if row.get("verdict") in known else Agreement.NOT_SEEN,
        str(row.get("changes") or ""),
        tuple(str(it) for it in row.get("settings") or ()),
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
        raise typer.BadParameter(f"{path} is there and no report of the doctor", param_hint="--report")
    return body


def _write(path: Path, body: Mapping[str, Any]) -> None:
    """Replace the report as a whole; it is for its owner until they attach it somewhere."""
    made = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(body, file, indent=2)
            file.write("\n")
        made.replace(path)
    except OSError as error:
        raise CannotLook(f"the report cannot be written to {path}: {error.strerror}") from None


def _table(findings: Sequence[LiveFinding]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for it in findings:
        words = Text(f"assumed: {safe(it.assumed)}\nseen: {safe(it.seen)}")
        if it.verdict is Agreement.DIFFERS:
            words.append(f"\nchanges: {safe(it.changes)}", "cyan")
        grid.add_row(Text(it.verdict.value, _STYLES[it.verdict]), safe(it.check), words)
    return grid


def _summary(findings: Sequence[LiveFinding]) -> str:
    counts = {verdict: sum(it.verdict is verdict for it in findings) for verdict in Agreement}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
