"""The commands about templates: list them, make one, change one, remove one."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuherd.client.async_client import TemplateFields
from gpuherd.contract.catalogue_models import Template
from gpuherd.entrypoints.cli.commands import catalogue
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.confirm import confirm_or_exit, require_terminal
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.cli.runtime.workload_options import (
    ContainerCommand,
    Env,
    Image,
    MinCuda,
    Port,
    RegistryAuth,
    envs_of,
)

TemplateArgument = Annotated[str, typer.Argument(metavar="ID", help="Which template.")]
DiskOption = Annotated[int | None, typer.Option("--disk", min=10, max=1000, help="Root disk in GB.")]


def build_templates() -> typer.Typer:
    """Return `gpuherd templates` with its subcommands."""
    templates = group_with_default(list_templates)
    templates.command("create")(create_template)
    templates.command("change")(change_template)
    templates.command("rm")(remove_template)
    return templates


def list_templates(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List what can run on an instance; with a subcommand: change your own."""
    catalogue.list_templates(context, Output.for_command(as_json=as_json, quiet=quiet))


def create_template(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What it is called; no other one of yours may be.")],
    image: Annotated[str, typer.Option("--image", help="The image to run: docker.io/pytorch/pytorch:…")],
    command: ContainerCommand = None,
    env: Env = None,
    port: Port = None,
    disk: DiskOption = None,
    min_cuda: MinCuda = None,
    registry_auth: RegistryAuth = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a template. The cloud keeps its variables in the clear: say secrets where you rent."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    fields = _fields(command, env, port, disk, min_cuda, registry_auth)
    made = run(cli, output, lambda herd: herd.create_template(name, image, **fields))
    _tell(output, made, f"{safe(made.name)} is made")
    if output.for_people:
        output.note(f"use it with: gpuherd up … --template {safe(made.id)}")


def change_template(
    context: typer.Context,
    template: TemplateArgument,
    name: Annotated[str | None, typer.Option("--name", help="What to call it.")] = None,
    image: Image = None,
    command: ContainerCommand = None,
    env: Env = None,
    port: Port = None,
    disk: DiskOption = None,
    min_cuda: MinCuda = None,
    registry_auth: RegistryAuth = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Change a template of yours; what is not said stays. Variables and ports are replaced as a whole."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    fields = _fields(command, env, port, disk, min_cuda, registry_auth)
    if name is None and image is None and not any(it is not None for it in fields.values()):
        raise typer.BadParameter("say what is to be different")
    changed = run(
        cli, output, lambda herd: herd.change_template(template, name=name, image_url=image, **fields)
    )
    _tell(output, changed, f"{safe(changed.name)} is changed")


def remove_template(
    context: typer.Context,
    template: TemplateArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Remove a template of yours. Machines that were made from it stay."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    if not yes:
        require_terminal()
        found = run(cli, output, lambda herd: herd.template(template))
        confirm_or_exit(output, f"Remove {safe(found.name)} ({safe(found.id)})?", "nothing was removed")
    removed = run(cli, output, lambda herd: herd.delete_template(template))
    if output.for_people:
        output.note(f"removed {safe(removed.id)}")
    else:
        output.answer(removed.raw, removed.id)


def _fields(
    command: str | None,
    env: list[str] | None,
    port: list[str] | None,
    disk: int | None,
    min_cuda: str | None,
    registry_auth: str | None,
) -> TemplateFields:
    return {
        "command": command,
        "envs": envs_of(env) or None,
        "ports": port or None,
        "rootfs_size": disk,
        "min_cuda_version": min_cuda,
        "registry_auth_id": registry_auth,
    }


def _tell(output: Output, template: Template, words: str) -> None:
    if output.for_people:
        output.out.print(words, soft_wrap=True)
    else:
        output.answer(template.raw, template.id)
