"""A database as an older gpuherd left it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from gpuherd.adapters.sql import schema_migration
from gpuherd.adapters.sql.database import Database
from tests.support.sql.databases import install_queue, sqlalchemy_url

# Columns of `instance` that came after keys did, which older databases do not have.
LATER_COLUMNS = (
    *("due_at", "use_look_at", "lease_ends_at", "lease_s", "waits_since", "lineage", "link"),
    "rented_product",
)
BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@contextmanager
def left_at(revision: str, request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    """Give a database of the request's kind (one of `BOTH`) with the migrations up to `revision`."""
    url = f"sqlite:///{path}"
    if request.param == "postgres":
        libpq_url = request.getfixturevalue("postgres_url")
        asyncio.run(install_queue(libpq_url))
        url = sqlalchemy_url(libpq_url)

    def upgrade(connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(schema_migration.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    with closing(Database(url)) as database:
        database.migrate_with(upgrade)
        yield database
