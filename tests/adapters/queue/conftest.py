"""Each engine test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.adapters.queue.queue_backends import (
    PostgresBackend,
    SqlBackend,
    SqliteBackend,
    postgres_backend,
    sqlite_backend,
)
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlBackend]:
    if request.param == "sqlite":
        with sqlite_backend(tmp_path) as sqlite:
            yield sqlite
    else:
        async with postgres_backend(request.getfixturevalue("postgres_url")) as postgres:
            yield postgres


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteBackend]:
    with sqlite_backend(tmp_path) as backend:
        yield backend


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[PostgresBackend]:  # noqa: F811
    async with postgres_backend(postgres_url) as backend:
        yield backend
