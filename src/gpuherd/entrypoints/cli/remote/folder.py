"""Files on their way: packed into a stream and out of it, never as a whole in memory or on disk."""

from __future__ import annotations

import fnmatch
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

# What nobody wants to send: it is big, can be made again, or holds secrets of this computer.
LEFT_OUT = (
    ".git",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
)
# Read by every tar that an image may have.
FORMAT = tarfile.GNU_FORMAT
BLOCK = 64 * 1024

Progress = Callable[[int], None]


class UnpackRefused(Exception):
    """A stranger's archive wanted to write outside of its folder, or is no archive."""


def pack(source: Path, name: str, into: IO[bytes], left_out: Sequence[str], tell: Progress) -> None:
    """Write a file, or a folder with everything in it, as `name` ("." for a folder's content)."""
    with tarfile.open(fileobj=_counted(into, tell), mode="w|", format=FORMAT) as archive:
        for path, inside in _entries(source, PurePosixPath(name), left_out):
            try:
                archive.add(path, arcname=str(inside), recursive=False)
            except FileNotFoundError:
                # Gone since it was listed: an editor's swap file, a log that was rotated.
                continue


def unpack(archive_bytes: IO[bytes], into: Path, tell: Progress) -> int:
    """Return how many entries were written. Nothing is written outside of the folder."""
    written = 0
    try:
        with tarfile.open(fileobj=_counted(archive_bytes, tell), mode="r|") as archive:
            for member in archive:
                # Refuses absolute names, "..", links that lead out and devices; drops owners and odd modes.
                archive.extract(member, into, filter="data")
                written += 1
    except tarfile.FilterError as error:
        raise UnpackRefused(
            f"the machine sent {error.tarinfo.name!r}, which leads out of the folder"
        ) from error
    except tarfile.ReadError as error:
        if written:
            raise UnpackRefused(f"what the machine sent ends too early: {error}") from error
    return written


def _entries(
    source: Path, name: PurePosixPath, left_out: Sequence[str]
) -> Iterator[tuple[Path, PurePosixPath]]:
    if source.is_symlink() or not source.is_dir():
        yield source, name
        return
    yield source, name
    for entry in sorted(os.scandir(source), key=lambda it: it.name):
        if not any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in left_out):
            yield from _entries(Path(entry.path), name / entry.name, left_out)


class _Counted:
    """A stream that tells how much went through it."""

    def __init__(self, stream: IO[bytes], tell: Progress) -> None:
        self._stream = stream
        self._tell = tell
        self._bytes = 0

    def write(self, block: bytes) -> int:
        self._stream.write(block)
        self._add(len(block))
        return len(block)

    def read(self, size: int = BLOCK) -> bytes:
        block = self._stream.read(size)
        self._add(len(block))
        return block

    def _add(self, count: int) -> None:
        self._bytes += count
        self._tell(self._bytes)


def _counted(stream: IO[bytes], tell: Progress) -> IO[bytes]:
    # A stream that is read or written from its beginning to its end needs no more than that.
    return cast(IO[bytes], _Counted(stream, tell))
