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

from gpuherd.entrypoints.cli import choices
from gpuherd.entrypoints.cli.choices import Choice, Lookup
from gpuherd.entrypoints.cli.session import surroundings_of

PATIENCE_S = 1.0

# By the name of the option, or by what the help calls the value.
LOOKUPS: dict[str, Lookup] = {
    "NAME_OR_ID": choices.instances,
    "--template": choices.templates,
    "--region": choices.regions,
}

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ODD = re.compile(r"[^A-Za-z0-9 ._-]+")


def teach(command: Any) -> None:
    """Let every argument and option that names something of the server complete it, in subcommands too."""
    for parameter in command.params:
        # One that may be left out stands in brackets.
        for name in ((parameter.metavar or "").strip("[]"), *parameter.opts):
            if name in LOOKUPS:
                parameter.shell_complete = partial(_complete, LOOKUPS[name])
    for below in getattr(command, "commands", {}).values():
        teach(below)


def offered(found: Sequence[Choice], beginning: str) -> list[tuple[str, str]]:
    """Return what may be given to a shell: plain words, with plain words about them."""
    plain = [replace(it, words=tuple(filter(_PLAIN.fullmatch, it.words))) for it in found]
    fitting = choices.fitting([it for it in plain if it.words], beginning)
    return [(word, _ODD.sub(" ", about).strip()) for word, about in fitting]


def _complete(lookup: Lookup, context: typer.Context, beginning: str) -> list[CompletionItem]:
    found = choices.ask(surroundings_of(context), lookup, PATIENCE_S)
    return [CompletionItem(word, help=about) for word, about in offered(found, beginning)]
