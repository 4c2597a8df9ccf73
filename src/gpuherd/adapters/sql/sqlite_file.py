"""The SQLite file: backup, restore, integrity."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpuherd.adapters.sql.sql_types import DatabaseUnusable

# A megabyte at a time, so that Ctrl-C is heard in between.
PAGES_PER_STEP = 256


BUSY_TIMEOUT_S = 5.0


# More events than can have been told since a copy was made.
EVENT_NUMBERS_SKIPPED = 1_000_000


# What belongs to a database in WAL mode besides the file itself.
WAL_SUFFIXES = ("-wal", "-shm")


@dataclass(frozen=True)
class CheckedCopy:
    """A file that was read through and found whole."""

    path: Path
    size_bytes: int
    schema: str
    installation: str


@contextmanager
def checked_copy(source: Path, target: Path) -> Iterator[CheckedCopy]:
    """Make a checked copy of `source` beside `target`. The caller moves the copy away to keep it.

    Raise `DatabaseUnusable` if the database is damaged, and `OSError` if the copy cannot be written.
    """
    # mkstemp lets only our own user read the file, even while it is written.
    handle, name = tempfile.mkstemp(prefix=f"{target.name}.partial-", dir=target.parent)
    os.close(handle)
    draft = Path(name)
    try:
        try:
            yield _copy(source, draft)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise DatabaseUnusable(f"{source} cannot be copied: {error}") from error
    finally:
        for leftover in (draft, *wal_files(draft)):
            leftover.unlink(missing_ok=True)


def wal_files(path: Path) -> tuple[Path, ...]:
    """Return the files that SQLite keeps beside a database, whether they are there or not."""
    return tuple(path.with_name(f"{path.name}{ending}") for ending in WAL_SUFFIXES)


def publish(copy: Path, target: Path, *, overwrite: bool) -> None:
    """Give a finished copy its name, for good; `FileExistsError` rather than lose what has that name."""
    if overwrite:
        copy.replace(target)
    else:
        _link(copy, target)
    _sync(target.parent)


def replace_database(copy: Path, database: Path, aside: Path) -> Path | None:
    """Replace the database with a finished copy. Return the new path of the old database, if there was one.

    The caller holds the lock of the directory. A whole database is in place at each moment.
    """
    if not database.exists():
        # SQLite would take a leftover log for the log of the new database.
        _remove(wal_files(database))
        publish(copy, database, overwrite=False)
        return None
    # Copy every byte before SQLite repairs anything: a damaged file may hold the only copy of some data.
    for part, name in zip((database, *wal_files(database)), (aside, *wal_files(aside)), strict=True):
        if part.exists():
            _duplicate(part, name)
    _checkpoint(database)
    _sync(database.parent)
    _remove(wal_files(database))
    publish(copy, database, overwrite=True)
    return aside


def skip_event_numbers(copy: Path) -> None:
    """Skip event numbers, so that no new event gets the number of an event that the copy lacks."""
    with closing(_opened(copy)) as connection:
        further = (EVENT_NUMBERS_SKIPPED,)
        moved = connection.execute("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'event'", further)
        if not moved.rowcount:
            connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('event', ?)", further)
    _sync(copy)


def installation_of(path: Path) -> str:
    """Return the installation id of a database; empty if there is none, or if it is too damaged to tell."""
    # `immutable` keeps SQLite from touching anything, the log included.
    where = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with (
        suppress(sqlite3.Error, UnicodeDecodeError),
        closing(sqlite3.connect(where, uri=True)) as connection,
    ):
        return _described(connection)[1]
    return ""


def _copy(source: Path, draft: Path) -> CheckedCopy:
    with closing(_opened(source)) as there, closing(_opened(draft)) as here:
        # One moment for all steps: writers go on, and no step has to begin anew because of them.
        there.execute("BEGIN")
        there.execute("SELECT 1 FROM sqlite_master").fetchone()
        there.backup(here, pages=PAGES_PER_STEP, sleep=0)
        there.execute("ROLLBACK")
        # All in one file, which can be read where nothing can be written.
        here.execute("PRAGMA journal_mode=DELETE").fetchone()
        # guard: a copy is read through
        if (problem := find_damage(here)) is not None:
            raise DatabaseUnusable(f"{source} is damaged ({problem})")
        schema, installation = _described(here)
    if not schema:
        raise DatabaseUnusable(f"{source} is not a database of gpuherd")
    _sync(draft)
    return CheckedCopy(draft, draft.stat().st_size, schema, installation)


def _described(connection: sqlite3.Connection) -> tuple[str, str]:
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"alembic_version", "installation"} <= there:
        return "", ""
    schema = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    named = connection.execute("SELECT value FROM installation WHERE key = 'installation'").fetchone()
    return (schema[0] if schema else ""), (named[0] if named else "")


def _opened(path: Path) -> sqlite3.Connection:
    # Not by its name alone: SQLite would make what is not there.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
    )


def _checkpoint(database: Path) -> None:
    """Bring everything into the one file, so that nothing is lost with the log; if that can be done."""
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(_opened(database)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchone()


def _link(path: Path, name: Path) -> None:
    """Give a file a second name that nothing else has yet; copy it where there are no links."""
    try:
        os.link(path, name)
    except FileExistsError:
        raise
    except OSError:
        _duplicate(path, name)


def _duplicate(path: Path, name: Path) -> None:
    with path.open("rb") as source, name.open("xb") as copy:
        name.chmod(0o600)
        shutil.copyfileobj(source, copy)
    _sync(name)


def _remove(paths: tuple[Path, ...]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# What money depends on: better to refuse now than to meet a hole in the middle of a pass.
CHECKED_TABLES = ("instance", "attempt")


def find_damage(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong with the file, or None; `sqlite3.Error` if it cannot be read."""
    # The quick check would not compare tables with indexes, which hold a second copy of every id and tag.
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    # guard: a damaged file is refused
    if verdict != "ok":
        return str(verdict)
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in CHECKED_TABLES:
        # Every column, because bytes that are no text are found only by reading them as text.
        query = f"SELECT json_valid(doc), * FROM {table}"  # noqa: S608  one of two words above
        if table in there and not all(row[0] for row in connection.execute(query)):
            return f"a row of {table} makes no sense"
    return None
