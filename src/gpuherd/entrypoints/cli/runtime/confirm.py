"""A confirmation before something that cannot be undone, or costs money."""

from __future__ import annotations

import typer

from gpuherd.entrypoints.cli.render.output import Output
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode


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
