"""A confirmation before something that cannot be undone, or costs money."""

from __future__ import annotations

import sys

import typer

from gpuherd.entrypoints.cli.render.output import Output
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode


def is_interactive() -> bool:
    """Return True if a question would be read and answered by a person."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def require_terminal() -> None:
    """Refuse to go on where nobody can be asked."""
    if not is_interactive():
        raise typer.BadParameter("nobody can be asked here; say --yes if it shall go", param_hint="--yes")


def confirm_or_exit(output: Output, question: str, otherwise: str) -> None:
    """Ask, and return only if the answer is yes; else say `otherwise` and end."""
    try:
        confirmed = typer.confirm(question, err=True)
    except typer.Abort:
        output.note(f"\n{otherwise}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if not confirmed:
        output.note(otherwise)
        raise typer.Exit(ExitCode.FAILED)
