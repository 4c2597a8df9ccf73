"""Each engine test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.adapters.queue.places import (
    PostgresPlace,
    SqlitePlace,
    SqlPlace,
    postgres_place,
    sqlite_place,
)
from tests.support.postgres import postgres_server, postgres_url  # noqa: F401


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlPlace]:
    if request.param == "sqlite":
        with sqlite_place(tmp_path) as sqlite:
            yield sqlite
    else:
        async with postgres_place(request.getfixturevalue("postgres_url")) as postgres:
            yield postgres


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqlitePlace]:
    with sqlite_place(tmp_path) as place:
        yield place


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[PostgresPlace]:  # noqa: F811
    async with postgres_place(postgres_url) as place:
        yield place
