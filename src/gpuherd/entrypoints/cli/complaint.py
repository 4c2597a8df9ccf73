"""A failure on stderr: for people in five lines, for programs as one line of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from rich.text import Text

from gpuherd.entrypoints.cli.failures import Report
from gpuherd.entrypoints.cli.output import Mode, Output, as_json, safe
from gpuherd.entrypoints.cli.tables import Column, table


def complain(output: Output, report: Report) -> None:
    """Tell `report`: what happened, why, what to do; the request id last."""
    if output.mode is Mode.JSON:
        # One line, so that the last line of stderr is the error, whatever progress came before it.
        typer.echo(as_json(report.as_json(), indent=None), err=True)
        return
    err = output.err
    err.print(Text.assemble(("error: ", "bold red"), safe(report.title), (f" ({safe(report.code)})", "dim")))
    if report.detail and report.detail != report.title:
        output.note(f"  {safe(report.detail)}")
    # A single wrong field is the whole detail already.
    for problem in (error for error in report.errors if error.get("message") != report.detail):
        output.note(f"  {safe(problem.get('field', '?'))}: {safe(problem.get('message', ''))}")
    if reasons := list(_reasons(report.details)):
        err.print(table(_REASON_COLUMNS, reasons, err.width))
    for candidate in _candidates(report.details):
        output.note(f"  {safe(candidate)}")
    if report.suggestion:
        output.note(f"try: {safe(report.suggestion)}", "yellow")
    if report.request_id:
        output.note(f"request id: {safe(report.request_id)}", "dim")


@dataclass(frozen=True)
class _Reason:
    region: str
    offer: str
    why_not: str


_REASON_COLUMNS: list[Column[_Reason]] = [
    Column("REGION", lambda r: r.region, 1),
    Column("OFFER", lambda r: r.offer, 2, shrinks_to=12),
    Column("WHY NOT", lambda r: r.why_not, 0, shrinks_to=20, wraps=True),
]


def _reasons(details: Mapping[str, Any]) -> Iterator[_Reason]:
    """Read why each region had nothing: a reason for each offer, or one for the whole region."""
    regions = details.get("regions")
    for entry in regions if isinstance(regions, list) else []:
        if not isinstance(entry, dict):
            continue
        region = str(entry.get("region", "?"))
        offers = entry.get("offers")
        for offer in offers if isinstance(offers, list) else []:
            if isinstance(offer, dict):
                name = str(offer.get("productName") or offer.get("productId") or "")
                yield _Reason(region, name, str(offer.get("reason", "")))
        if entry.get("reason"):
            yield _Reason(region, "", str(entry["reason"]))


def _candidates(details: Mapping[str, Any]) -> Iterator[str]:
    """Read which instances an ambiguous name could mean."""
    candidates = details.get("candidates")
    for one in candidates if isinstance(candidates, list) else []:
        if isinstance(one, dict):
            one = "  ".join(str(one[key]) for key in ("id", "instanceId", "name", "status") if one.get(key))
        yield str(one)
