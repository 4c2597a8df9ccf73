"""The commands about the audit log: read it, and see for yourself that nobody has changed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import typer
from rich.table import Table

from gpuherd.client.client_connection import Page
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.access_models import AuditEntry
from gpuherd.domain import audit
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.lists import page_of, print_page
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, SilentOption
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.options import AllPages, PageSize
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


@dataclass(frozen=True)
class ChainVerification:
    """How far the chain holds."""

    entries: int
    last_hash: str
    broken_at: int | None
    # The last entry that was pruned; 0 if none was.
    pruned_up_to: int = 0

    def as_json(self) -> dict[str, Any]:
        intact = self.broken_at is None
        return {
            "intact": intact,
            "entries": self.entries,
            "lastHash": self.last_hash,
            "brokenAt": self.broken_at,
            "prunedUpTo": self.pruned_up_to,
        }


def build_audit() -> typer.Typer:
    """Return `gpuherd audit` with its subcommands."""
    audit = group_with_default(list_entries, "Who did what.")
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
    Entries pruned for their age are told by an entry of their own; the chain is verified from there on.
    """
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        verdict = _walk(herd)
        if output.silent:
            pass
        elif not output.for_people:
            output.json(verdict.as_json())
        elif verdict.broken_at is None:
            begin = f" after entry {verdict.pruned_up_to}" if verdict.pruned_up_to else ""
            as_written = f"{verdict.entries} entries{begin}, all as they were written"
            output.note(f"{as_written}; last hash {verdict.last_hash}")
        else:
            output.note(f"the chain is broken at entry {verdict.broken_at}", "red")
        if verdict.broken_at is not None:
            raise typer.Exit(ExitCode.FAILED)

    run(cli, output, work)


def _walk(herd: Gpuherd) -> ChainVerification:
    while True:
        if (verdict := _walk_from_one_anchor(herd)) is not None:
            return verdict


def _walk_from_one_anchor(herd: Gpuherd) -> ChainVerification | None:
    """Return what there is to say of the chain, or None if it was pruned meanwhile."""
    paged = herd.audit.list(order="asc")
    page = paged.page()
    anchor = _anchor(page)
    first_n = anchor.n if anchor else 0
    last_n, last_hash = first_n, anchor.hash if anchor else audit.NO_HASH
    is_told = anchor is None
    # Page by page: the log may be longer than anybody wants to hold at once.
    while True:
        if _anchor(page) != anchor:
            return None
        read = [_entry(it) for it in page.entries]
        entries = [it for it in read if it is not None]
        broken_at = audit.first_broken_entry(entries, last_n, last_hash)
        if broken_at is None and None in read:
            # What cannot even be read was not written by us.
            broken_at = last_n + read.index(None) + 1
        if broken_at is not None:
            return ChainVerification(broken_at - 1 - first_n, last_hash, broken_at, first_n)
        is_told = is_told or any(anchor is not None and anchor.is_told_by(it) for it in entries)
        if entries:
            last_n, last_hash = entries[-1].n, entries[-1].hash
        if not page.next_cursor:
            # Whoever removes entries by hand can move the anchor too, but has not told the log of it.
            return ChainVerification(last_n - first_n, last_hash, None if is_told else first_n, first_n)
        page = paged.page(page.next_cursor)


def _anchor(page: Page[AuditEntry]) -> audit.AuditAnchor | None:
    match page.raw.get("anchor"):
        case {"n": int(n), "hash": str(last_hash)}:
            return audit.AuditAnchor(n, last_hash)
        case _:
            return None


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
