"""What the shell offers for Tab: instances, templates and regions as the server knows them.

A shell evaluates what it is given here (zsh with `eval`), and a name may be a stranger's: only plain words
are offered. Whatever goes wrong, nothing is said: somebody is in the middle of a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import typer
from typer._click.shell_completion import CompletionItem

from gpuherd.entrypoints.cli.runtime import choices
from gpuherd.entrypoints.cli.runtime.choices import Choice, Lookup
from gpuherd.entrypoints.cli.runtime.session import cli_context_of

COMPLETION_TIMEOUT_S = 1.0

# By the name of the option, or by what the help calls the value.
LOOKUPS: dict[str, Lookup] = {
    "NAME_OR_ID": choices.instances,
    "--template": choices.templates,
    "--region": choices.regions,
}

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 ._-]+")


def add_completion(command: Any) -> None:
    """Let every argument and option that names something of the server complete it, in subcommands too."""
    for parameter in command.params:
        # One that may be left out stands in brackets.
        for name in ((parameter.metavar or "").strip("[]"), *parameter.opts):
            if name in LOOKUPS:
                parameter.shell_complete = partial(_complete, LOOKUPS[name])
    for below in getattr(command, "commands", {}).values():
        add_completion(below)


def shell_safe_choices(found: Sequence[Choice], beginning: str) -> list[tuple[str, str]]:
    """Return what may be given to a shell: plain words, with plain words about them."""
    plain = [replace(it, words=tuple(filter(_PLAIN.fullmatch, it.words))) for it in found]
    fitting = choices.fitting([it for it in plain if it.words], beginning)
    return [(word, _NOT_PLAIN.sub(" ", about).strip()) for word, about in fitting]


def _complete(lookup: Lookup, context: typer.Context, beginning: str) -> list[CompletionItem]:
    found = choices.fetch_choices(cli_context_of(context), lookup, COMPLETION_TIMEOUT_S)
    return [CompletionItem(word, help=about) for word, about in shell_safe_choices(found, beginning)]
