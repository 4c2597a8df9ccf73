"""The commands as a group that helps: with Tab, and with what there is when something was left out."""

from __future__ import annotations

import shlex
from typing import Any

from rich.text import Text
from typer._click.exceptions import MissingParameter
from typer.core import TyperGroup

from gpuherd.entrypoints.cli import choices
from gpuherd.entrypoints.cli.choices import Choice, Lookup
from gpuherd.entrypoints.cli.completion import teach
from gpuherd.entrypoints.cli.output import Output, safe
from gpuherd.entrypoints.cli.session import Surroundings, surroundings_of
from gpuherd.entrypoints.cli.tables import pairs

PATIENCE_S = 4.0
SHOWN_MAX = 8

# What must be said to rent something: the option, how to ask what there is, what shows it all.
NEEDED: dict[str, tuple[str, Lookup, str]] = {
    "gpu": ("--gpu", choices.gpus, "gpuherd offers"),
    "template": ("--template", choices.templates, "gpuherd templates"),
}


class Helpful(TyperGroup):
    """The whole of `gpuherd`."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            teach(command)
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MissingParameter as missing:
            context = missing.ctx
            if context is not None and NEEDED.keys() <= {it.name for it in context.command.params}:
                _help_to_choose(context)
            raise


def _help_to_choose(context: Any) -> None:
    """Show what there is of everything that was left out, and a command that is good for pasting."""
    world, output = surroundings_of(context), Output.for_command()
    said = {name: context.params.get(name) for name in NEEDED}
    command = [*context.command_path.split()]
    for name, (option, lookup, more) in NEEDED.items():
        word = said[name]
        if word is None:
            found = _show(world, output, option, lookup, more)
            if not found:
                return
            word = found[0].words[0]
        command += [option, str(word)]
    output.note(f"for example: {safe(shlex.join(command))}\n", "yellow")


def _show(world: Surroundings, output: Output, option: str, lookup: Lookup, more: str) -> list[Choice]:
    found = choices.ask(world, lookup, PATIENCE_S)
    if found:
        rest = f"; all of them: {more}" if len(found) > SHOWN_MAX else ""
        output.note(f"{option} can be{rest}", "bold")
        lines: list[tuple[str, Text | str]] = [(it.words[0], it.about) for it in found[:SHOWN_MAX]]
        output.err.print(pairs(lines))
    return found
