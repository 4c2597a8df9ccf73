"""The data directory and the files with keys: may we write, may others read, is there room."""

from __future__ import annotations

import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpuherd.bootstrap.data_dir import ADMIN_KEY_FILE, WEBHOOK_KEY_FILE
from gpuherd.bootstrap.doctor.judging import OK, PROBLEM, WARNING
from gpuherd.entrypoints.cli.doctor import Finding

DIRECTORY, KEYS = "data directory", "key files"
OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
ROOM_MIN_BYTES, ROOM_GOOD_BYTES = 100_000_000, 1_000_000_000


@dataclass(frozen=True)
class Directory:
    """How a directory is; one that is not there is judged by the place where it would be made."""

    path: Path
    exists: bool
    writable: bool
    mode: int
    free_bytes: int


@dataclass(frozen=True)
class KeyFile:
    """A file that should be for one user only."""

    path: Path
    mode: int
    empty: bool
    # The service does not start with it; else it is only careless.
    vital: bool = True


def check_files(data_dir: Path, config_file: Path, *, file_has_secrets: bool) -> list[Finding]:
    """Look at the directory and at every file that may hold a key."""
    files = [look_at_file(data_dir / name) for name in (ADMIN_KEY_FILE, WEBHOOK_KEY_FILE)]
    if file_has_secrets:
        files.append(look_at_file(config_file, vital=False))
    return [judge_directory(look_at(data_dir)), *judge_key_files([it for it in files if it is not None])]


def look_at(path: Path) -> Directory:
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
    return Directory(path, place == path, writable, mode, shutil.disk_usage(place).free)


def look_at_file(path: Path, *, vital: bool = True) -> KeyFile | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return KeyFile(path, stat.S_IMODE(found.st_mode), found.st_size == 0, vital)


def judge_directory(it: Directory) -> Finding:
    """Say whether the service can live there."""
    facts = {"path": str(it.path), "freeBytes": it.free_bytes}
    if not it.writable:
        advice = "make it yours (chown, chmod 700), or set GPUHERD_DATA_DIR to a directory that you can write"
        return Finding(DIRECTORY, PROBLEM, f"{it.path} cannot be written", advice, facts)
    room = f"{it.free_bytes / 1e9:.1f} GB free"
    if it.free_bytes < ROOM_GOOD_BYTES:
        verdict = PROBLEM if it.free_bytes < ROOM_MIN_BYTES else WARNING
        advice = "make room: without it nothing can be written down, so nothing is rented"
        return Finding(DIRECTORY, verdict, f"{it.path} has only {room}", advice, facts)
    if not it.exists:
        return Finding(DIRECTORY, OK, f"{it.path} is made at the first start; {room}", facts=facts)
    if it.mode & OF_OTHERS:
        words = f"{it.path} is open to other users of this machine (mode {it.mode:04o})"
        return Finding(DIRECTORY, WARNING, words, f"chmod 700 {it.path}", facts)
    return Finding(DIRECTORY, OK, f"{it.path} can be written; {room}", facts=facts)


def judge_key_files(files: list[KeyFile]) -> list[Finding]:
    """Say which keys others could read."""
    bad = [finding for it in files if (finding := _judge_key_file(it)) is not None]
    if bad:
        return bad
    words = ", ".join(it.path.name for it in files)
    return [Finding(KEYS, OK, f"{words}: for you only" if words else "none yet; made at the first start")]


def _judge_key_file(it: KeyFile) -> Finding | None:
    if it.mode & OF_OTHERS:
        words = f"{it.path} can be read by others (mode {it.mode:04o})"
        return Finding(KEYS, PROBLEM if it.vital else WARNING, words, f"chmod 600 {it.path}")
    if it.empty and it.vital:
        words = f"{it.path} is empty: a crash has cut it short"
        return Finding(KEYS, PROBLEM, words, f"remove it; the next start makes a new one: rm {it.path}")
    return None
