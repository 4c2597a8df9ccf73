"""The commands about registry credentials: list, make, remove. A password is never an argument."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.catalogue_models import RegistryAuth
from gpuherd.entrypoints.cli.render.lists import print_page, whole
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.remove import only_one, remove_one
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.cli.runtime.typed_secret import read_secret


def build_registry() -> typer.Typer:
    """Return `gpuherd registry` with its subcommands."""
    registry = group_with_default(
        list_registry_auths, "Logins to registries with private images; the cloud keeps them."
    )
    registry.command("ls")(list_registry_auths)
    registry.command("create")(create_registry_auth)
    registry.command("rm")(remove_registry_auth)
    return registry


_COLUMNS: list[Column[RegistryAuth]] = [
    Column("NAME", lambda it: it.name, 0, shrinks_to=12),
    Column("USER", lambda it: it.username or "", 1, shrinks_to=12),
    Column("ID", lambda it: it.id, 0),
]


def list_registry_auths(
    context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """List the account's registry credentials, without their passwords."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        print_page(
            output,
            "registryAuths",
            whole(herd.registry.list()),
            lambda found: table(_COLUMNS, found, output.out.width),
            "no registry credentials; make one: gpuherd registry create NAME --username USER",
            lambda it: it.id,
        )

    run(cli, output, work)


def create_registry_auth(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What it is called; no other one may be.")],
    username: Annotated[str, typer.Option(metavar="USER", help="Who logs in at the registry.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Let the cloud keep a login: the password is typed unseen, or read from a pipe. It never comes back."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    password = read_secret("password")
    made = run(cli, output, lambda herd: herd.registry.create(name, username, password))
    if not output.for_people:
        output.answer(made.raw, made.id)
        return
    output.out.print(f"{safe(made.name)} is kept by the cloud", soft_wrap=True)
    output.note(f"use it with: gpuherd up … --registry-auth {safe(made.id)}")


def remove_registry_auth(
    context: typer.Context,
    auth: Annotated[str, typer.Argument(metavar="NAME_OR_ID", help="Which credential.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Remove a registry credential; not while a machine or a template uses it."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    remove_one(
        cli,
        output,
        lambda herd: _find(herd, auth),
        lambda herd, found: herd.registry.delete(found),
        question=lambda it: f"Remove the login of {safe(it.username or '')} ({safe(it.name)})?",
        shown=lambda it: safe(it.name),
        yes=yes,
    )


def _find(herd: Gpuherd, word: str) -> RegistryAuth:
    nouns = ("registry credential", "registry credentials are called")
    return only_one(herd.registry.list(), word, lambda it: it.name, "REGISTRY_AUTH_NOT_FOUND", nouns)
