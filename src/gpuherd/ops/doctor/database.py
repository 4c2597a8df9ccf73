"""The database: can it be opened, is it whole, and does it fit this version."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from gpuherd.adapters.sql.schema_migration import newest_schema
from gpuherd.adapters.sql.sqlite_file import find_damage
from gpuherd.bootstrap.rules_from_settings import redact_password
from gpuherd.ops.doctor.results import CheckResult
from gpuherd.ops.doctor.verdicts import OK, PROBLEM, WARNING
from gpuherd.resilience.concurrency import run_in_daemon_thread

NAME = "database"
READ_LIMIT_S = 8.0
CONNECT_S = 6
_VERSION = "SELECT version_num FROM alembic_version"


@dataclass(frozen=True)
class OpenedDatabase:
    """A database that could be asked.

    `damage` says what is wrong with it, `not_fully_read` that it was too long.
    """

    where: str
    kind: str
    schema: str | None
    damage: str | None = None
    not_fully_read: bool = False
    size_bytes: int | None = None


@dataclass(frozen=True)
class UnopenedDatabase:
    """A database that could not."""

    where: str
    reason: str


async def check_sqlite(path: Path, read_through_s: float = READ_LIMIT_S) -> list[CheckResult]:
    """Look at a file without changing it, and read it through for as long as there is time."""
    if not await run_in_daemon_thread(path.exists):
        return [CheckResult(NAME, OK, f"{path} is made at the first start")]
    opened = await run_in_daemon_thread(lambda: open_sqlite(path))
    if isinstance(opened, OpenedDatabase):
        try:
            async with asyncio.timeout(read_through_s):
                opened = replace(opened, damage=await run_in_daemon_thread(lambda: damage_in_file(path)))
        except TimeoutError:
            opened = replace(opened, not_fully_read=True)
    return [judge_database(opened)]


def open_sqlite(path: Path) -> OpenedDatabase | UnopenedDatabase:
    """Ask a file for its version."""
    size_bytes = sum(it.stat().st_size for it in (path, path.with_name(f"{path.name}-wal")) if it.exists())
    try:
        with closing(_connect(path)) as connection:
            schema = _schema(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return UnopenedDatabase(str(path), str(error))
    kind = f"SQLite {sqlite3.sqlite_version}"
    return OpenedDatabase(str(path), kind, schema, size_bytes=size_bytes)


def damage_in_file(path: Path) -> str | None:
    """Read every page and return what is wrong, if anything is."""
    try:
        with closing(_connect(path)) as connection:
            return find_damage(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)


def _connect(path: Path) -> sqlite3.Connection:
    # Not by its name alone: SQLite would make what is not there.
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=2)


def _schema(connection: sqlite3.Connection) -> str | None:
    named = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
    if connection.execute(named).fetchone() is None:
        return None
    row = connection.execute(_VERSION).fetchone()
    return str(row[0]) if row else None


async def check_postgres(url: str) -> list[CheckResult]:
    """Ask a PostgreSQL for its version and ours."""
    return [judge_database(await open_postgres(url))]


async def open_postgres(url: str) -> OpenedDatabase | UnopenedDatabase:
    plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
    where = redact_password(plain)
    try:
        words = make_conninfo(plain, connect_timeout=CONNECT_S)
    except psycopg.ProgrammingError:
        # Their message quotes the URL, password and all.
        return UnopenedDatabase(where, "PostgreSQL does not understand the URL")
    try:
        async with await psycopg.AsyncConnection.connect(words) as connection:
            version = connection.info.server_version
            there = await (await connection.execute("SELECT to_regclass('alembic_version')")).fetchone()
            row = None
            if there is not None and there[0] is not None:
                row = await (await connection.execute(_VERSION)).fetchone()
    except psycopg.Error as error:
        return UnopenedDatabase(where, str(error).partition("\n")[0])
    kind = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    return OpenedDatabase(where, kind, str(row[0]) if row else None)


def judge_database(it: OpenedDatabase | UnopenedDatabase) -> CheckResult:
    """Say whether the service can start on it."""
    if isinstance(it, UnopenedDatabase):
        advice = "check GPUHERD_DATABASE_URL and GPUHERD_DATA_DIR, that it runs, and that you may use it"
        return CheckResult(NAME, PROBLEM, f"{it.where} cannot be opened: {it.reason}", advice)
    facts = {"kind": it.kind, "schema": it.schema, "sizeBytes": it.size_bytes}
    if it.damage is not None:
        words = f"{it.where} is damaged ({it.damage})"
        advice = "stop the server and put a copy in its place: gpuherd restore FILE"
        return CheckResult(NAME, PROBLEM, words, advice, facts)
    newest = newest_schema()
    if it.schema is not None and it.schema > newest:
        words = f"{it.where} was written by a newer gpuherd (schema {it.schema}, this one knows {newest})"
        return CheckResult(
            NAME, PROBLEM, words, "install the newer version again, or restore an older copy", facts
        )
    size = "" if it.size_bytes is None else f", {it.size_bytes / 1e6:.2f} MB"
    words = f"{it.where}: {it.kind}, schema {it.schema or 'empty'}{size}"
    if it.schema is not None and it.schema < newest:
        advice = f"the next start brings it to {newest}; make a copy before: gpuherd backup FILE"
        return CheckResult(NAME, WARNING, words, advice, facts)
    if it.not_fully_read:
        advice = "it is too large to be read through here; every start of the server does that"
        return CheckResult(NAME, WARNING, words, advice, facts)
    return CheckResult(NAME, OK, words, facts=facts)
