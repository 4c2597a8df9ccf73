"""What lives in the data directory besides the database: the lock of the process, and the admin key."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from pathlib import Path

from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.secret import Secret

ADMIN_KEY_FILE = "admin.key"
LOCK_FILE = "gpuherd.lock"


class CannotStart(GpuherdError):
    """Something about this machine must be changed by a person first."""

    code = "CANNOT_START"


class ProcessLock:
    """Held as long as the process lives: two processes on one SQLite file would each think they are alone."""

    def __init__(self, directory: Path):
        _make(directory)
        self._file = (directory / LOCK_FILE).open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise CannotStart(
                f"another gpuherd is using {directory}. Stop it first, give this one another "
                "GPUHERD_DATA_DIR, or use PostgreSQL for several processes."
            ) from None

    def release(self) -> None:
        self._file.close()


def admin_key(directory: Path, configured: Secret | None) -> Secret:
    """Return the admin key: the configured one, else the stored one, else a new one that is stored."""
    if configured is not None:
        return configured
    _make(directory)
    if (known := stored_admin_key(directory)) is not None:
        return known
    fresh = Secret(f"ghk_{secrets.token_urlsafe(32)}")
    handle = os.open(directory / ADMIN_KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(fresh.reveal() + "\n")
    return fresh


def stored_admin_key(directory: Path) -> Secret | None:
    """Return the key that a server on this machine has made, if this user may read it."""
    path = directory / ADMIN_KEY_FILE
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CannotStart(f"{path} can be read by others; run: chmod 600 {path}")
        return Secret(path.read_text().strip())
    except (FileNotFoundError, PermissionError):
        return None


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CannotStart(f"the data directory {directory} cannot be made: {error.strerror}") from error
