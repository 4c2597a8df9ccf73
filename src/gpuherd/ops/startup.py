"""Shared by the operator's commands: usable settings or exit 78, and errors of a start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.settings import Settings, SettingsInvalid, load_settings


def usable_settings(*, needs_cloud: bool = False) -> Settings:
    """Return the settings, or print all their problems and exit with 78."""
    try:
        return load_settings(needs_cloud=needs_cloud)
    except SettingsInvalid as invalid:
        _print("gpuherd cannot start, its settings have problems:", *(f"  - {it}" for it in invalid.problems))
        raise SystemExit(int(ExitCode.CONFIGURATION)) from None


@contextmanager
def exit_if_start_fails() -> Iterator[None]:
    """Print in one line why the service cannot start or continue, and exit with the code for that."""
    try:
        yield
    except CannotStart as problem:
        _print(f"gpuherd cannot start: {problem}")
        raise SystemExit(int(ExitCode.CONFIGURATION)) from None
    except GpuherdError as error:
        _print(f"gpuherd cannot go on: {error.message}")
        code = ExitCode.CONFIGURATION if error.code == "DATABASE_UNUSABLE" else ExitCode.FAILED
        raise SystemExit(int(code)) from None


def _print(*lines: str) -> None:
    sys.stderr.write("\n".join(lines) + "\n")
