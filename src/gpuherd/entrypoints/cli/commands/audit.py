"""The commands about the audit log: read it, and see for yourself that nobody has changed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import typer
from rich.table import Table

from gpuherd.client import AuditEntry, Gpuherd
from gpuherd.domain.access import audit
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.lists import page_of, print_page
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, SilentOption
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.options import AllPages, PageSize
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


@dataclass(frozen=True)
class ChainVerification:
    """How far the chain holds."""

    entries: int
    last_hash: str
    broken_at: int | None

    def as_json(self) -> dict[str, Any]:
        intact = self.broken_at is None
        return {
            "intact": intact,
            "entries": self.entries,
            "lastHash": self.last_hash,
            "brokenAt": self.broken_at,
        }


def build_audit() -> typer.Typer:
    """Return `gpuherd audit` with its subcommands."""
    audit = typer.Typer(no_args_is_help=True, help="Who did what.")
    audit.command("ls")(list_entries)
    audit.command("verify")(verify)
    return audit


def list_entries(
    context: typer.Context,
    limit: PageSize = 50,
    everything: AllPages = False,
    as_json: JsonOption = False,
) -> None:
    """List who did what, newest first."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json)

    def work(herd: Gpuherd) -> None:
        page = page_of(herd.audit.list(page_size=limit), everything=everything)
        now, width = cli.clock.now(), output.out.width
        print_page(
            output, "entries", page, lambda rows: _table(rows, now, width), "nothing was done yet", _number
        )

    run(cli, output, work)


def verify(context: typer.Context, as_json: JsonOption = False, quiet: SilentOption = False) -> None:
    """Compute every seal anew. Exit code 1 names the first entry that is not as it was written.

    Keep the last hash that is shown in a place of yours: as long as it comes again, nothing was cut off.
    """
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        verdict = _walk(herd)
        if output.silent:
            pass
        elif not output.for_people:
            output.json(verdict.as_json())
        elif verdict.broken_at is None:
            output.note(f"{verdict.entries} entries, all as they were written; last hash {verdict.last_hash}")
        else:
            output.note(f"the chain is broken at entry {verdict.broken_at}", "red")
        if verdict.broken_at is not None:
            raise typer.Exit(ExitCode.FAILED)

    run(cli, output, work)


def _walk(herd: Gpuherd) -> ChainVerification:
    count, last_hash = 0, audit.NO_HASH
    # Page by page: the log may be longer than anybody wants to hold at once.
    for page in herd.audit.list(order="asc").pages():
        entries = [_entry(it) for it in page.entries]
        broken_at = audit.first_broken_entry((it for it in entries if it is not None), count, last_hash)
        if broken_at is None and None in entries:
            # What cannot even be read was not written by us.
            broken_at = count + entries.index(None) + 1
        if broken_at is not None:
            return ChainVerification(broken_at - 1, last_hash, broken_at)
        count += len(entries)
        last_hash = entries[-1].hash if entries and entries[-1] else last_hash
    return ChainVerification(count, last_hash, None)


def _entry(it: AuditEntry) -> audit.AuditEntry | None:
    # What somebody has tampered with may lack anything.
    n, at = cast("int | None", it.n), cast("datetime | None", it.at)
    if n is None or at is None:
        return None
    said = [word or "" for word in (it.actor, it.action, it.target, it.before, it.after, it.request_id)]
    return audit.AuditEntry(n, audit.AuditRecord(at, *said), it.hash or "")


def _number(it: AuditEntry) -> str:
    return "" if it.n is None else str(it.n)


def _table(rows: Sequence[AuditEntry], now: datetime, width: int) -> Table:
    columns: list[Column[AuditEntry]] = [
        Column("N", _number, 5, right=True),
        Column("AT", lambda it: when(it.at, now), 2),
        Column("ACTOR", lambda it: it.actor, 1),
        Column("ACTION", lambda it: it.action, 0),
        Column("TARGET", lambda it: it.target, 3, shrinks_to=12),
        Column("BEFORE", lambda it: it.before, 7, shrinks_to=8),
        Column("AFTER", lambda it: it.after, 6, shrinks_to=12),
        Column("REQUEST", lambda it: it.request_id, 8),
    ]
    return table(columns, rows, width)
