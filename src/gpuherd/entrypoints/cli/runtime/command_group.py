"""The command groups of `gpuherd`.

Shell completion, suggestions where a required option was left out, words that make no sense told as
every other error is, and what a bare group does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer
from rich.text import Text
from typer._click.exceptions import MissingParameter, NoArgsIsHelpError, UsageError
from typer.core import TyperGroup

from gpuherd.entrypoints.cli.render.output import Mode, Output, mode_of_words, safe
from gpuherd.entrypoints.cli.render.tables import pairs
from gpuherd.entrypoints.cli.runtime import choices
from gpuherd.entrypoints.cli.runtime.choices import Choice, Lookup
from gpuherd.entrypoints.cli.runtime.completion import add_completion
from gpuherd.entrypoints.cli.runtime.errors import ErrorReport, print_error
from gpuherd.entrypoints.cli.runtime.exit_codes import MEANINGS, ExitCode
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of

SUGGESTION_TIMEOUT_S = 4.0
SHOWN_MAX = 8
# Under which the context keeps what was typed.
WORDS = "gpuherd.words"

# What must be said to rent something: the option, how to ask what there is, what shows it all.
REQUIRED_OPTIONS: dict[str, tuple[str, Lookup, str]] = {
    "gpu": ("--gpu", choices.gpus, "gpuherd offers"),
    "template": ("--template", choices.templates, "gpuherd templates"),
}


class GpuherdGroup(TyperGroup):
    """The whole of `gpuherd`."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            add_completion(command)
        return command

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        words = tuple(args)
        with _told_to_programs(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[WORDS] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        with _told_to_programs(ctx.meta[WORDS]):
            try:
                return super().invoke(ctx)
            except MissingParameter as missing:
                context = missing.ctx
                if context is not None and REQUIRED_OPTIONS.keys() <= {
                    it.name for it in context.command.params
                }:
                    _suggest_values(context)
                raise


@contextmanager
def _told_to_programs(words: Sequence[str]) -> Iterator[None]:
    """Tell a program as JSON that its words make no sense; people are told by typer, in a box."""
    try:
        yield
    except NoArgsIsHelpError:
        raise
    except UsageError as error:
        # How the library quotes a parser is nobody's business.
        error.message = error.message.removeprefix("Value error, ")
        if mode_of_words(words) is not Mode.JSON:
            raise
        print_error(Output.for_command(as_json=True), _usage_report(error))
        raise typer.Exit(int(ExitCode.USAGE)) from error


def _usage_report(error: UsageError) -> ErrorReport:
    path = error.ctx.command_path if error.ctx else "gpuherd"
    return ErrorReport(
        ExitCode.USAGE,
        code="USAGE",
        title=MEANINGS[ExitCode.USAGE],
        detail=error.format_message(),
        suggestion=f"see how it is used with: {path} --help",
    )


def group_with_default(default: Callable[..., None], words: str | None = None) -> typer.Typer:
    """Return a group that does `default`, with its options, when no subcommand is given: mostly it lists.

    The help says `words`, or else what that of `default` says.
    """
    group = typer.Typer(invoke_without_command=True)

    @wraps(default)
    def unless_subcommand(context: typer.Context, **options: Any) -> None:
        if context.invoked_subcommand is None:
            default(context, **options)

    group.callback(help=words or default.__doc__)(unless_subcommand)
    return group


def _suggest_values(context: Any) -> None:
    """Show what there is of everything that was left out, and a command that is good for pasting."""
    cli, output = cli_context_of(context), Output.for_command()
    said = {name: context.params.get(name) for name in REQUIRED_OPTIONS}
    command = [*context.command_path.split()]
    for name, (option, lookup, more) in REQUIRED_OPTIONS.items():
        if name == "template" and not said[name] and (image := context.params.get("image")):
            command += ["--image", image]
            continue
        # Some may be said more than once.
        words = [said[name]] if isinstance(said[name], str) else said[name]
        if not words:
            found = _show(cli, output, option, lookup, more)
            if not found:
                return
            words = found[0].words[:1]
        for word in words:
            command += [option, word]
    output.note(f"for example: {safe(shlex.join(command))}\n", "yellow")


def _show(cli: CliContext, output: Output, option: str, lookup: Lookup, more: str) -> list[Choice]:
    found = choices.fetch_choices(cli, lookup, SUGGESTION_TIMEOUT_S)
    if found:
        rest = f"; all of them: {more}" if len(found) > SHOWN_MAX else ""
        output.note(f"{option} can be{rest}", "bold")
        lines: list[tuple[str, Text | str]] = [(it.words[0], it.about) for it in found[:SHOWN_MAX]]
        output.err.print(pairs(lines))
    return found
