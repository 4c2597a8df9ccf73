"""A secret, typed unseen or from a pipe; never an argument, which all processes may read."""

from __future__ import annotations

import sys

import typer

from gpuherd.domain.access.secret import Secret


def read_secret(prompt: str) -> Secret:
    """Return what was typed or piped."""
    if sys.stdin.isatty():
        return Secret(typer.prompt(prompt, hide_input=True))
    # The line break that echo and most files end with is no part of it.
    return Secret(sys.stdin.read().removesuffix("\n"))
