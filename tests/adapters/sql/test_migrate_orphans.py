"""Migration 2 gives sightings of an older database the instance that their tag names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

import gpuherd.adapters.sql.migrate as migrations
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.migrate import migrate
from tests.support.builders import a_tag, instance_id
from tests.support.databases import install_queue, sqlalchemy_url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def old(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    """A database as the first version of gpuherd left it."""
    url = f"sqlite:///{path}"
    if request.param == "postgres":
        libpq_url = request.getfixturevalue("postgres_url")
        asyncio.run(install_queue(libpq_url))
        url = sqlalchemy_url(libpq_url)
    with closing(Database(url)) as database:
        database.migrate_with(_first_version)
        yield database


def _first_version(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "0001")


def test_what_was_seen_before_is_known_to_its_instance_after(old: Database) -> None:
    tags = {"ours": str(a_tag(7, 12)), "odd": "gh1-short", "none": None}

    def see(connection: sa.Connection) -> None:
        for cloud_id, tag in tags.items():
            row = sa.text(
                "INSERT INTO sighting (cloud_id, tag, first_seen_at, changed_at, missing_lists, doc) "
                "VALUES (:cloud_id, :tag, 0, 0, 0, '{}')"
            )
            connection.execute(row, {"cloud_id": cloud_id, "tag": tag})

    old.write_now(see)
    migrate(old)
    query = sa.text("SELECT cloud_id, tagged_instance_id FROM sighting")
    found = old.write_now(lambda c: {row.cloud_id: row.tagged_instance_id for row in c.execute(query)})
    assert found == {"ours": instance_id(7), "odd": None, "none": None}
