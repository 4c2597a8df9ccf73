"""A null character does not keep PostgreSQL from writing down the rest, and nobody is found by one."""

from __future__ import annotations

from contextlib import closing

import pytest

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores.installation_store import SqlFlags
from tests.support.sql.databases import sqlalchemy_url
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401


@pytest.mark.postgres
async def test_what_is_written_has_a_mark_in_its_place(postgres_url: str) -> None:  # noqa: F811
    with closing(Database(sqlalchemy_url(postgres_url))) as database:
        migrate(database)
        flags = SqlFlags(database)
        await flags.put("said", "before\x00after")
        assert await flags.get("said") == "before\ufffdafter"
        assert await flags.get("sa\x00id") is None
