"""The checks of this host: files, port, database."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import stat
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from gpuherd.adapters.sql.schema_migration import newest_schema
from gpuherd.adapters.sql.sqlite_file import find_damage
from gpuherd.bootstrap.key_files import (
    ADMIN_KEY_FILE,
    SECRETS_KEY_FILE,
    WEBHOOK_KEY_FILE,
    CannotStart,
)
from gpuherd.bootstrap.rules_from_settings import redact_password
from gpuherd.bootstrap.serve import LOOPBACK_HOSTS, bound_socket
from gpuherd.ops.doctor_results import (
    OK,
    PROBLEM,
    WARNING,
    CheckResult,
)
from gpuherd.ops.doctor_server_checks import http_query, is_gpuherd
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import run_in_daemon_thread
from gpuherd.settings import Settings

KEY_FILES = (ADMIN_KEY_FILE, WEBHOOK_KEY_FILE, SECRETS_KEY_FILE)
DIRECTORY, KEYS = "data directory", "key files"
GROUP_AND_OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO
FREE_SPACE_MIN_BYTES, FREE_SPACE_WARN_BYTES = 100_000_000, 1_000_000_000


@dataclass(frozen=True)
class DirectoryFacts:
    """The facts about a directory. If it is missing, the facts are those of the nearest parent."""

    path: Path
    exists: bool
    writable: bool
    mode: int
    free_bytes: int


@dataclass(frozen=True)
class KeyFileFacts:
    """A file that only one user should read."""

    path: Path
    mode: int
    empty: bool
    # True if the service does not start with such a file; otherwise it is only a warning.
    required: bool = True


def check_files(data_dir: Path, config_file: Path, *, file_has_secrets: bool) -> list[CheckResult]:
    """Check the directory and every file that may hold a key."""
    files = [inspect_file(data_dir / name) for name in KEY_FILES]
    if file_has_secrets:
        files.append(inspect_file(config_file, required=False))
    return [
        judge_directory(inspect_directory(data_dir)),
        *judge_key_files([it for it in files if it is not None]),
    ]


def inspect_directory(path: Path) -> DirectoryFacts:
    """Return the facts about a directory, found by writing a file."""
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
    """Judge whether the service can use the directory."""
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
    """Judge which keys other users could read."""
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


NAME = "port"


class PortOwner(Enum):
    """Who uses the port."""

    FREE = auto()
    OURS = auto()
    TAKEN = auto()


async def check_port(settings: Settings, clock: Clock) -> list[CheckResult]:
    """Bind the port for a moment. If that fails, find out who uses it."""
    where = f"{settings.host}:{settings.port}"
    try:
        await run_in_daemon_thread(lambda: _try(settings))
    except CannotStart as refused:
        answer = await http_query(f"{_reachable(settings)}/livez", None, clock)
        return [judge_port(where, PortOwner.OURS if is_gpuherd(answer) else PortOwner.TAKEN, refused.message)]
    findings = [judge_port(where, PortOwner.FREE)]
    if settings.host not in LOOPBACK_HOSTS and settings.admin_key is None:
        findings.append(no_admin_key_finding(settings.host))
    return findings


def _try(settings: Settings) -> None:
    with bound_socket(settings.host, settings.port):
        pass


def _reachable(settings: Settings) -> str:
    """Return an address at which a server on all interfaces can be reached."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def judge_port(where: str, owner: PortOwner, why: str = "") -> CheckResult:
    """Judge whether a server can be started."""
    match owner:
        case PortOwner.FREE:
            return CheckResult(NAME, OK, f"{where} is free")
        case PortOwner.OURS:
            return CheckResult(NAME, OK, f"{where} is served by gpuherd")
        case PortOwner.TAKEN:
            number = where.rpartition(":")[2]
            advice = (
                f"see who has it (ss -ltnp 'sport = :{number}') and end that, or set another GPUHERD_PORT"
            )
            return CheckResult(NAME, PROBLEM, why or f"{where} is taken", advice)


def no_admin_key_finding(host: str) -> CheckResult:
    """Return the finding that the service would refuse to start, and why."""
    words = f"GPUHERD_HOST is {host}, which others can reach, and no GPUHERD_ADMIN_KEY is set"
    return CheckResult(
        NAME, PROBLEM, words, "set GPUHERD_ADMIN_KEY (16 characters or more), or GPUHERD_HOST=127.0.0.1"
    )


NAME_database = "database"
READ_LIMIT_S = 8.0
CONNECT_S = 6
_VERSION = "SELECT version_num FROM alembic_version"


@dataclass(frozen=True)
class OpenedDatabase:
    """A database that answered.

    `damage` describes an error in it. `not_fully_read` means that it was too large.
    """

    where: str
    kind: str
    schema: str | None
    damage: str | None = None
    not_fully_read: bool = False
    size_bytes: int | None = None


@dataclass(frozen=True)
class UnopenedDatabase:
    """A database that could not be opened."""

    where: str
    reason: str


async def check_sqlite(path: Path, read_through_s: float = READ_LIMIT_S) -> list[CheckResult]:
    """Check a file without changing it. Read it as far as the time allows."""
    if not await run_in_daemon_thread(path.exists):
        return [CheckResult(NAME_database, OK, f"{path} is made at the first start")]
    opened = await run_in_daemon_thread(lambda: open_sqlite(path))
    if isinstance(opened, OpenedDatabase):
        try:
            async with asyncio.timeout(read_through_s):
                opened = replace(opened, damage=await run_in_daemon_thread(lambda: damage_in_file(path)))
        except TimeoutError:
            opened = replace(opened, not_fully_read=True)
    return [judge_database(opened)]


def open_sqlite(path: Path) -> OpenedDatabase | UnopenedDatabase:
    """Open a file and read its version."""
    size_bytes = sum(it.stat().st_size for it in (path, path.with_name(f"{path.name}-wal")) if it.exists())
    try:
        with closing(_connect(path)) as connection:
            schema = _schema(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return UnopenedDatabase(str(path), str(error))
    kind = f"SQLite {sqlite3.sqlite_version}"
    return OpenedDatabase(str(path), kind, schema, size_bytes=size_bytes)


def damage_in_file(path: Path) -> str | None:
    """Read every page and return the damage, if any."""
    try:
        with closing(_connect(path)) as connection:
            return find_damage(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)


def _connect(path: Path) -> sqlite3.Connection:
    # With a URL: by its name alone, SQLite would create a missing file.
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=2)


def _schema(connection: sqlite3.Connection) -> str | None:
    named = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
    if connection.execute(named).fetchone() is None:
        return None
    row = connection.execute(_VERSION).fetchone()
    return str(row[0]) if row else None


async def check_postgres(url: str) -> list[CheckResult]:
    """Read the version of PostgreSQL and of our schema."""
    return [judge_database(await open_postgres(url))]


async def open_postgres(url: str) -> OpenedDatabase | UnopenedDatabase:
    plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
    where = redact_password(plain)
    try:
        words = make_conninfo(plain, connect_timeout=CONNECT_S)
    except psycopg.ProgrammingError:
        # The original message quotes the URL with its password.
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
    """Judge whether the service can start with the database."""
    if isinstance(it, UnopenedDatabase):
        advice = "check GPUHERD_DATABASE_URL and GPUHERD_DATA_DIR, that it runs, and that you may use it"
        return CheckResult(NAME_database, PROBLEM, f"{it.where} cannot be opened: {it.reason}", advice)
    facts = {"kind": it.kind, "schema": it.schema, "sizeBytes": it.size_bytes}
    if it.damage is not None:
        words = f"{it.where} is damaged ({it.damage})"
        advice = "stop the server and put a copy in its place: gpuherd restore FILE"
        return CheckResult(NAME_database, PROBLEM, words, advice, facts)
    newest = newest_schema()
    if it.schema is not None and it.schema > newest:
        words = f"{it.where} was written by a newer gpuherd (schema {it.schema}, this one knows {newest})"
        return CheckResult(
            NAME_database, PROBLEM, words, "install the newer version again, or restore an older copy", facts
        )
    size = "" if it.size_bytes is None else f", {it.size_bytes / 1e6:.2f} MB"
    words = f"{it.where}: {it.kind}, schema {it.schema or 'empty'}{size}"
    if it.schema is not None and it.schema < newest:
        advice = f"the next start brings it to {newest}; make a copy before: gpuherd backup FILE"
        return CheckResult(NAME_database, WARNING, words, advice, facts)
    if it.not_fully_read:
        advice = "it is too large to be read through here; every start of the server does that"
        return CheckResult(NAME_database, WARNING, words, advice, facts)
    return CheckResult(NAME_database, OK, words, facts=facts)
