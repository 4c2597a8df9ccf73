"""A command that works without a server says no: why, with which exit code, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import typer

from gpuherd.entrypoints.cli.complaint import complain
from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.failures import Report
from gpuherd.entrypoints.cli.output import Output

T = TypeVar("T")


class Refusal(Exception):
    """It is not done, and nothing was changed."""

    def __init__(self, exit_code: ExitCode, code: str, message: str, *, suggestion: str = "") -> None:
        super().__init__(message)
        self.report = Report(exit_code, code, message, suggestion=suggestion)


def obey(output: Output, work: Callable[[], T]) -> T:
    """Return what `work` returns; tell a refusal and exit with its code."""
    try:
        return work()
    except Refusal as refusal:
        complain(output, refusal.report)
        raise typer.Exit(int(refusal.report.exit_code)) from refusal
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
