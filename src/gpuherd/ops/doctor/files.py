"""The data directory and the files with keys: may we write, may others read, is there room."""

from __future__ import annotations

import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpuherd.bootstrap.key_files import ADMIN_KEY_FILE, SECRETS_KEY_FILE, WEBHOOK_KEY_FILE
from gpuherd.ops.doctor.results import CheckResult
from gpuherd.ops.doctor.verdicts import OK, PROBLEM, WARNING

KEY_FILES = (ADMIN_KEY_FILE, WEBHOOK_KEY_FILE, SECRETS_KEY_FILE)
DIRECTORY, KEYS = "data directory", "key files"
GROUP_AND_OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO
FREE_SPACE_MIN_BYTES, FREE_SPACE_WARN_BYTES = 100_000_000, 1_000_000_000


@dataclass(frozen=True)
class DirectoryFacts:
    """How a directory is; one that is not there is judged by the place where it would be made."""

    path: Path
    exists: bool
    writable: bool
    mode: int
    free_bytes: int


@dataclass(frozen=True)
class KeyFileFacts:
    """A file that should be for one user only."""

    path: Path
    mode: int
    empty: bool
    # The service does not start with it; else it is only careless.
    required: bool = True


def check_files(data_dir: Path, config_file: Path, *, file_has_secrets: bool) -> list[CheckResult]:
    """Look at the directory and at every file that may hold a key."""
    files = [inspect_file(data_dir / name) for name in KEY_FILES]
    if file_has_secrets:
        files.append(inspect_file(config_file, required=False))
    return [
        judge_directory(inspect_directory(data_dir)),
        *judge_key_files([it for it in files if it is not None]),
    ]


def inspect_directory(path: Path) -> DirectoryFacts:
    """Find out whether things can be written there, by writing one."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            writable = True
    except OSError:
        writable = False
    mode = stat.S_IMODE(place.stat().st_mode)
    return DirectoryFacts(path, place == path, writable, mode, shutil.disk_usage(place).free)


def inspect_file(path: Path, *, required: bool = True) -> KeyFileFacts | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return KeyFileFacts(path, stat.S_IMODE(found.st_mode), found.st_size == 0, required)


def judge_directory(it: DirectoryFacts) -> CheckResult:
    """Say whether the service can live there."""
    facts = {"path": str(it.path), "freeBytes": it.free_bytes}
    if not it.writable:
        advice = "make it yours (chown, chmod 700), or set GPUHERD_DATA_DIR to a directory that you can write"
        return CheckResult(DIRECTORY, PROBLEM, f"{it.path} cannot be written", advice, facts)
    free_space = f"{it.free_bytes / 1e9:.1f} GB free"
    if it.free_bytes < FREE_SPACE_WARN_BYTES:
        verdict = PROBLEM if it.free_bytes < FREE_SPACE_MIN_BYTES else WARNING
        advice = "make room: without it nothing can be written down, so nothing is rented"
        return CheckResult(DIRECTORY, verdict, f"{it.path} has only {free_space}", advice, facts)
    if not it.exists:
        return CheckResult(DIRECTORY, OK, f"{it.path} is made at the first start; {free_space}", facts=facts)
    if it.mode & GROUP_AND_OTHERS_MODE:
        words = f"{it.path} is open to other users of this machine (mode {it.mode:04o})"
        return CheckResult(DIRECTORY, WARNING, words, f"chmod 700 {it.path}", facts)
    return CheckResult(DIRECTORY, OK, f"{it.path} can be written; {free_space}", facts=facts)


def judge_key_files(files: list[KeyFileFacts]) -> list[CheckResult]:
    """Say which keys others could read."""
    bad = [finding for it in files if (finding := _judge_key_file(it)) is not None]
    if bad:
        return bad
    words = ", ".join(it.path.name for it in files)
    return [CheckResult(KEYS, OK, f"{words}: for you only" if words else "none yet; made at the first start")]


def _judge_key_file(it: KeyFileFacts) -> CheckResult | None:
    if it.mode & GROUP_AND_OTHERS_MODE:
        words = f"{it.path} can be read by others (mode {it.mode:04o})"
        return CheckResult(KEYS, PROBLEM if it.required else WARNING, words, f"chmod 600 {it.path}")
    if it.empty and it.required:
        words = f"{it.path} is empty: a crash has cut it short"
        return CheckResult(KEYS, PROBLEM, words, f"remove it; the next start makes a new one: rm {it.path}")
    return None
