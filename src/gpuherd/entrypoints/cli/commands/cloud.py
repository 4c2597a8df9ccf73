"""The commands about the cloud as a whole: what of it is not believed, and the word of an admin."""

from __future__ import annotations

import typer

from gpuherd.contract.service_models import CloudTrust
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, safe
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def build_cloud() -> typer.Typer:
    """Return `gpuherd cloud` with its subcommands."""
    cloud = group_with_default(show)
    cloud.command("confirm-account")(confirm_account)
    cloud.command("confirm-loss")(confirm_loss)
    return cloud


def show(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show what of the cloud is not believed: the account of the key, or the loss of many machines."""
    output = Output.for_command(as_json=as_json)
    _tell(output, run(cli_context_of(context), output, lambda herd: herd.cloud.get()))


def confirm_account(context: typer.Context, as_json: JsonOption = False) -> None:
    """Say that NOVITA_API_KEY is of the account on which the machines of this database are."""
    output = Output.for_command(as_json=as_json)
    _tell(output, run(cli_context_of(context), output, lambda herd: herd.cloud.confirm_account()))


def confirm_loss(context: typer.Context, as_json: JsonOption = False) -> None:
    """Say that the machines which are missing now are gone: their owners are told."""
    output = Output.for_command(as_json=as_json)
    _tell(output, run(cli_context_of(context), output, lambda herd: herd.cloud.confirm_loss()))


def _tell(output: Output, it: CloudTrust) -> None:
    if not output.for_people:
        output.json(it.raw)
        return
    account = it.account_unconfirmed or "the account is the one that this database belongs to"
    output.out.print(safe(account), soft_wrap=True)
    output.out.print(safe(it.vanishing_held or "no loss of machines is held back"), soft_wrap=True)
