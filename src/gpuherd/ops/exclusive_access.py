"""An exclusive lock on a SQLite file, for commands that must not run beside a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuherd.bootstrap.key_files import CannotStart, ProcessLock
from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode


@contextmanager
def exclusive_access(path: Path | None) -> Iterator[None]:
    """Keep every other process away from a SQLite file."""
    if path is None:
        yield
        return
    try:
        lock = ProcessLock(path)
    except CannotStart as taken:
        raise CommandError(
            ExitCode.CONFLICT,
            "SERVER_RUNNING",
            taken.message,
            suggestion="stop the server, then say it again",
        ) from taken
    try:
        yield
    finally:
        lock.release()
