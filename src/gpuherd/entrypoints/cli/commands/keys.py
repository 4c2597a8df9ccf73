"""The commands about API keys: make one, list them, revoke one, and what signs its webhooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from gpuherd.client.access_resources import NewKey, Scope, WebhookSecret
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.access_models import ApiKey
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.lists import print_page, whole
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, pairs, table
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.options import MaxLeaseOption
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.durations import time_ahead

_TERM = re.compile(r"(?P<number>[1-9][0-9]{0,4})(?P<unit>[mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SIGNED_WITH = {
    "key": "its own secret",
    "common": "WEBHOOK_SECRET, which all keys without a secret of their own share",
    "nothing": "nothing",
}
_STYLES = {"active": "green", "expired": "yellow", "revoked": "red"}


class KeyScope(StrEnum):
    """What a key may do; each includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


SCOPES: dict[KeyScope, Scope] = {KeyScope.READ: "read", KeyScope.WRITE: "write", KeyScope.ADMIN: "admin"}


def _term(words: str) -> timedelta:
    match = _TERM.fullmatch(words.strip())
    if match is None:
        raise typer.BadParameter("say it like 12h, 30d or 8w")
    return timedelta(**{_UNITS[match["unit"]]: int(match["number"])})


def build_keys() -> typer.Typer:
    """Return `gpuherd keys` with its subcommands."""
    keys = group_with_default(list_keys, "Who else may use this server, how far, and how long.")
    keys.command("create")(create_key)
    keys.command("ls")(list_keys)
    keys.command("revoke")(revoke_key)
    keys.command("webhook-secret")(webhook_secret)
    return keys


def create_key(
    context: typer.Context,
    scope: Annotated[
        list[KeyScope],
        typer.Option("--scope", case_sensitive=False, help="What it may do: read, write, admin."),
    ],
    expires: Annotated[
        timedelta | None, typer.Option(parser=_term, metavar="TERM", help="For how long: 12h, 30d, 8w.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="A word of yours.")] = None,
    max_gpus: Annotated[int | None, typer.Option(min=0, help="The most GPUs that it may hold.")] = None,
    max_usd_per_hour: Annotated[
        str | None, typer.Option(metavar="USD", help="The most that its instances may cost an hour.")
    ] = None,
    max_lease: MaxLeaseOption = None,
    rpm: Annotated[int | None, typer.Option(min=1, help="Requests a minute.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a key. It is shown now and never again; with -q only the key is."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    made = run(
        cli,
        output,
        lambda herd: herd.keys.create(
            [SCOPES[it] for it in scope],
            label=label,
            expires_at=None if expires is None else cli.clock.now() + expires,
            requests_per_minute=rpm,
            max_gpus=max_gpus,
            max_hourly_usd=max_usd_per_hour,
            max_lease_s=None if max_lease is None else round(max_lease),
        ),
    )
    secret = made.secret.reveal()
    if not output.for_people:
        output.answer({**made.key.raw, "key": secret, "webhookSecret": _reveal(made.webhook_secret)}, secret)
        return
    output.show(_page(made, cli.clock.now()))
    output.note("Keep the key now: it is stored nowhere, and shown never again.")


def list_keys(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List the keys, without what would let anybody in."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        page, now, width = whole(herd.keys.list()), cli.clock.now(), output.out.width
        print_page(
            output,
            "keys",
            page,
            lambda found: _table(found, now, width),
            "no keys but the admin key",
            lambda it: it.id,
        )

    run(cli, output, work)


def revoke_key(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Which key: the 8 characters after ghk_.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Revoke a key, at once. What it has rented goes on."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    revoked = run(cli, output, lambda herd: herd.keys.revoke(key_id))
    if output.for_people:
        output.note(f"revoked {safe(key_id)}")
    else:
        output.answer(revoked.raw, key_id)


def webhook_secret(
    context: typer.Context,
    key_id: Annotated[
        str, typer.Argument(metavar="[ID]", help="Which key; without it your own.", show_default=False)
    ] = "me",
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Give it a new one; for 24 hours the old one signs too.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what signs the webhooks of a key; with -q only the secret is.

    A key sees its own secret; of others an admin sees a new one only.
    """
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    found = run(
        cli,
        output,
        lambda herd: herd.keys.rotate_webhook_secret(key_id) if rotate else herd.keys.webhook_secret(key_id),
    )
    secret = _reveal(found.secret)
    if output.for_people:
        output.show(_secret_page(found, cli.clock.now()))
    else:
        output.answer({**found.key.raw, "secret": secret}, secret or "")


def _reveal(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def _limits(key: ApiKey) -> str:
    it = key.limits
    if not it:
        return ""
    gpus, usd, rate, lease_s = it.max_gpus, it.max_hourly_usd, it.requests_per_minute, it.max_lease_seconds
    said = (
        "" if gpus is None else f"{gpus} GPUs",
        "" if usd is None else f"${usd}/h",
        "" if rate is None else f"{rate}/min",
        "" if lease_s is None else f"lease {time_ahead(lease_s)}",
    )
    return ", ".join(filter(None, said))


def _table(rows: Sequence[ApiKey], now: datetime, width: int) -> Table:
    columns: list[Column[ApiKey]] = [
        Column("ID", lambda it: it.id, 0),
        Column("LABEL", lambda it: it.label or "", 3, shrinks_to=8),
        Column("SCOPES", lambda it: ", ".join(it.scopes), 1),
        Column("STATUS", lambda it: it.status, 2, style=lambda it: _STYLES.get(it.status, "")),
        Column("LIMITS", _limits, 4),
        Column("USED", lambda it: when(it.last_used_at, now), 5),
        Column("EXPIRES", lambda it: when(it.expires_at, now), 6),
        Column("CREATED", lambda it: when(it.created_at, now), 7),
    ]
    return table(columns, rows, width)


def _page(made: NewKey, now: datetime) -> Table:
    key = made.key
    lines = (
        ("key", made.secret.reveal()),
        ("webhook secret", _reveal(made.webhook_secret)),
        ("id", key.id),
        ("label", key.label or ""),
        ("scopes", ", ".join(key.scopes)),
        ("limits", _limits(key)),
        ("expires", when(key.expires_at, now)),
    )
    return pairs([(name, value) for name, value in lines if value])


def _secret_page(it: WebhookSecret, now: datetime) -> Table:
    key = it.key
    lines = (
        ("key", key.key_id),
        ("signed with", _SIGNED_WITH.get(key.signed_with, key.signed_with)),
        ("secret", _reveal(it.secret)),
        ("rotated", when(key.rotated_at, now)),
        ("old secret signs until", when(key.previous_secret_signs_until, now)),
    )
    return pairs([(name, value) for name, value in lines if value])
