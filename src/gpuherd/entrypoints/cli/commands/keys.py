"""The commands about API keys: make one, list them, revoke one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated
from urllib.parse import quote

import typer
from rich.table import Table

from gpuherd.domain.access.api_key import Scope
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.listing import Listing, tell
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run

BASE = "/api/keys"
_TERM = re.compile(r"(?P<number>[1-9][0-9]{0,4})(?P<unit>[mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_STYLES = {"active": "green", "expired": "yellow", "revoked": "red"}


def _term(words: str) -> timedelta:
    match = _TERM.fullmatch(words.strip())
    if match is None:
        raise typer.BadParameter("say it like 12h, 30d or 8w")
    return timedelta(**{_UNITS[match["unit"]]: int(match["number"])})


def build_keys() -> typer.Typer:
    """Return `gpuherd keys` with its subcommands."""
    keys = typer.Typer(no_args_is_help=True, help="Who else may use this server, how far, and how long.")
    keys.command("create")(create_key)
    keys.command("ls")(list_keys)
    keys.command("revoke")(revoke_key)
    return keys


def create_key(
    context: typer.Context,
    scope: Annotated[
        list[Scope], typer.Option("--scope", case_sensitive=False, help="What it may do: read, write, admin.")
    ],
    expires: Annotated[
        timedelta | None, typer.Option(parser=_term, metavar="TERM", help="For how long: 12h, 30d, 8w.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="A word of yours.")] = None,
    max_gpus: Annotated[int | None, typer.Option(min=0, help="The most GPUs that it may hold.")] = None,
    max_usd_per_hour: Annotated[
        str | None, typer.Option(metavar="USD", help="The most that its instances may cost an hour.")
    ] = None,
    rpm: Annotated[int | None, typer.Option(min=1, help="Requests a minute.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a key. It is shown now and never again; with -q only the key is."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    limits = {"maxGpus": max_gpus, "maxHourlyUsd": max_usd_per_hour, "requestsPerMinute": rpm}
    limits = {name: value for name, value in limits.items() if value is not None}
    said = {
        "scopes": [it.value for it in scope],
        "label": label,
        "expiresAt": None if expires is None else (cli.clock.now() + expires).isoformat(),
        "limits": limits or None,
    }
    body = {name: value for name, value in said.items() if value is not None}

    async def work(api: ApiClient) -> None:
        made = Details((await api.post(BASE, body)).body)
        if not output.for_people:
            output.answer(made.raw, made.text("key"))
            return
        output.show(_page(made, cli.clock.now()))
        output.note("Keep the key now: it is stored nowhere, and shown never again.")

    run(cli, output, work)


def list_keys(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List the keys, without what would let anybody in."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        body = (await api.get(BASE)).body
        rows = body.get("keys")
        listing = Listing("keys", rows if isinstance(rows, list) else [], body.get("total"), None)
        now, width = cli.clock.now(), output.out.width
        tell(output, listing, lambda found: _table(found, now, width), "no keys but the admin key")

    run(cli, output, work)


def revoke_key(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Which key: the 8 characters after ghk_.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Revoke a key, at once. What it has rented goes on."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        body = (await api.delete(f"{BASE}/{quote(key_id, safe='')}")).body
        if output.for_people:
            output.note(f"revoked {safe(key_id)}")
        else:
            output.answer(body, key_id)

    run(cli, output, work)


def _scopes(key: Details) -> str:
    value = key.raw.get("scopes")
    return ", ".join(map(str, value)) if isinstance(value, list) else ""


def _limits(key: Details) -> str:
    limits = Details(key.mapping("limits"))
    gpus, usd, rate = (limits.text(name) for name in ("maxGpus", "maxHourlyUsd", "requestsPerMinute"))
    said = (gpus and f"{gpus} GPUs", usd and f"${usd}/h", rate and f"{rate}/min")
    return ", ".join(filter(None, said))


def _table(rows: Sequence[Details], now: datetime, width: int) -> Table:
    columns: list[Column[Details]] = [
        Column("ID", lambda k: k.id, 0),
        Column("LABEL", lambda k: k.text("label"), 3, shrinks_to=8),
        Column("SCOPES", _scopes, 1),
        Column("STATUS", lambda k: k.status, 2, style=lambda k: _STYLES.get(k.status, "")),
        Column("LIMITS", _limits, 4),
        Column("USED", lambda k: when(k, "lastUsedAt", now), 5),
        Column("EXPIRES", lambda k: when(k, "expiresAt", now), 6),
        Column("CREATED", lambda k: when(k, "createdAt", now), 7),
    ]
    return table(columns, rows, width)


def _page(key: Details, now: datetime) -> Table:
    lines = (
        ("key", key.text("key")),
        ("id", key.id),
        ("label", key.text("label")),
        ("scopes", _scopes(key)),
        ("limits", _limits(key)),
        ("expires", when(key, "expiresAt", now)),
    )
    return pairs([(name, value) for name, value in lines if value])
