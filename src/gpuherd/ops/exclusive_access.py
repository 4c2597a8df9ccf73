"""Sole use of a database file, for commands that must not work on it beside a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuherd.bootstrap.data_dir import CannotStart, ProcessLock
from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.refusal import Refusal


@contextmanager
def alone(path: Path | None) -> Iterator[None]:
    """Keep every other process away from a SQLite file."""
    if path is None:
        yield
        return
    try:
        lock = ProcessLock(path.absolute().parent)
    except CannotStart as taken:
        raise Refusal(
            ExitCode.CONFLICT,
            "SERVER_RUNNING",
            taken.message,
            suggestion="stop the server, then say it again",
        ) from taken
    try:
        yield
    finally:
        lock.release()
