"""The commands about the audit log: read it, and see for yourself that nobody has changed it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from gpuherd.domain.access.audit import NO_HASH, AuditEntry, AuditRecord, first_broken_entry
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, SilentOption
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.render.times import parse_time
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.listing import pages, tell
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run

BASE = "/api/audit"
PAGE = "100"


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
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most (a page, with --all).")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All pages.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List who did what, newest first."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json)

    async def work(api: ApiClient) -> None:
        listing = await pages(api, BASE, "entries", [("limit", str(limit))], everything=everything)
        now, width = cli.clock.now(), output.out.width
        tell(output, listing, lambda rows: _table(rows, now, width), "nothing was done yet")

    run(cli, output, work)


def verify(context: typer.Context, as_json: JsonOption = False, quiet: SilentOption = False) -> None:
    """Compute every seal anew. Exit code 1 names the first entry that is not as it was written.

    Keep the last hash that is shown in a place of yours: as long as it comes again, nothing was cut off.
    """
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        verdict = await _walk(api)
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


async def _walk(api: ApiClient) -> ChainVerification:
    count, last_hash = 0, NO_HASH
    async for rows in _oldest_first(api):
        entries = [_entry(row) for row in rows]
        broken_at = first_broken_entry((it for it in entries if it is not None), count, last_hash)
        if broken_at is None and None in entries:
            # What cannot even be read was not written by us.
            broken_at = count + entries.index(None) + 1
        if broken_at is not None:
            return ChainVerification(broken_at - 1, last_hash, broken_at)
        count += len(entries)
        last_hash = entries[-1].hash if entries and entries[-1] else last_hash
    return ChainVerification(count, last_hash, None)


async def _oldest_first(api: ApiClient) -> AsyncIterator[Sequence[Details]]:
    """Give the log page by page; it may be longer than anybody wants to hold at once."""
    cursor: str | None = None
    while True:
        at = [("cursor", cursor)] if cursor else []
        listing = await pages(api, BASE, "entries", [("order", "asc"), ("limit", PAGE), *at])
        yield [Details(row) for row in listing.rows]
        if listing.next_cursor is None or listing.next_cursor == cursor:
            return
        cursor = listing.next_cursor


def _entry(row: Details) -> AuditEntry | None:
    n, at = row.raw.get("n"), parse_time(row.raw.get("at"))
    if not isinstance(n, int) or at is None:
        return None
    said = (row.text(name) for name in ("actor", "action", "target", "before", "after", "requestId"))
    return AuditEntry(n, AuditRecord(at, *said), row.text("hash"))


def _table(rows: Sequence[Details], now: datetime, width: int) -> Table:
    columns: list[Column[Details]] = [
        Column("N", lambda e: e.text("n"), 5, right=True),
        Column("AT", lambda e: when(e, "at", now), 2),
        Column("ACTOR", lambda e: e.text("actor"), 1),
        Column("ACTION", lambda e: e.text("action"), 0),
        Column("TARGET", lambda e: e.text("target"), 3, shrinks_to=12),
        Column("BEFORE", lambda e: e.text("before"), 7, shrinks_to=8),
        Column("AFTER", lambda e: e.text("after"), 6, shrinks_to=12),
        Column("REQUEST", lambda e: e.text("requestId"), 8),
    ]
    return table(columns, rows, width)
