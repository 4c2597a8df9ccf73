"""A question before something that cannot be undone, or costs money."""

from __future__ import annotations

import typer

from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.output import Output


def go_on_only_with_a_yes(output: Output, question: str, otherwise: str) -> None:
    """Ask, and return only if the answer is yes; else say `otherwise` and end."""
    try:
        sure = typer.confirm(question, err=True)
    except typer.Abort:
        output.note(f"\n{otherwise}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if not sure:
        output.note(otherwise)
        raise typer.Exit(ExitCode.FAILED)
