"""The commands about secrets: set one, list them, remove one. A value is never an argument or an answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table

from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.access_models import SecretName
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.lists import print_page, whole
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.cli.runtime.typed_secret import read_secret

Name = Annotated[str, typer.Argument(metavar="NAME", help="What it is called.")]
Shared = Annotated[bool, typer.Option("--shared", help="For all keys; only an admin may.")]


def build_secrets() -> typer.Typer:
    """Return `gpuherd secrets` with its subcommands."""
    secrets = group_with_default(list_secrets, "Values for variables of instances, kept encrypted.")
    secrets.command("set")(set_secret)
    secrets.command("ls")(list_secrets)
    secrets.command("rm")(remove_secret)
    secrets.command("rotate")(rotate_secrets)
    return secrets


def set_secret(
    context: typer.Context,
    name: Name,
    shared: Shared = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Keep a value under a name: typed unseen, or read from a pipe. It never comes back."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    value = read_secret("value")
    kept = run(cli_context_of(context), output, lambda herd: herd.secrets.set(name, value, shared=shared))
    if not output.for_people:
        output.answer(kept.raw, kept.name)
        return
    output.out.print(f"{safe(kept.name)} is set")
    output.note(f"use it with: gpuherd up … --secret VARIABLE={safe(kept.name)}")


def list_secrets(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List the secrets that your key may use, without their values."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        page, now, width = whole(herd.secrets.list()), cli.clock.now(), output.out.width
        print_page(
            output,
            "secrets",
            page,
            lambda found: _table(found, now, width),
            "no secrets",
            lambda it: it.name,
        )

    run(cli, output, work)


def _table(found: Sequence[SecretName], now: datetime, width: int) -> Table:
    columns: list[Column[SecretName]] = [
        Column("NAME", lambda it: it.name, 0),
        Column("FOR", lambda it: "all keys" if it.shared else "this key", 1),
        Column("CHANGED", lambda it: when(it.changed_at, now), 2),
    ]
    return table(columns, found, width)


def remove_secret(
    context: typer.Context,
    name: Name,
    shared: Shared = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Remove a secret. What runs keeps its value; what refers to it cannot be rented any more."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    gone = run(cli_context_of(context), output, lambda herd: herd.secrets.remove(name, shared=shared))
    if not output.for_people:
        output.answer(gone.raw, gone.name)
        return
    output.out.print(f"{safe(gone.name)} is removed")


def rotate_secrets(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Seal all secrets again with the present GPUHERD_SECRETS_KEY; tell what needs the previous one."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    done = run(cli_context_of(context), output, lambda herd: herd.secrets.rotate())
    if output.silent:
        return
    if not output.for_people:
        output.json(done.raw)
        return
    output.out.print(f"{done.resealed} sealed again")
    if done.unreadable:
        output.note(f"no key opens, so set anew: {safe(', '.join(done.unreadable))}", "yellow")
    if done.instances_left:
        output.note(f"{done.instances_left} instances have variables that need the previous key; keep it")
    else:
        output.note("nothing needs the previous key any more")
