"""Migration 2 gives sightings of an older database the instance that their tag names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from tests.adapters.sql.schema.old_database import BOTH, left_at
from tests.support.builders import a_tag, instance_id


@pytest.fixture(params=BOTH)
def old(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    """A database as the first version of gpuherd left it."""
    with left_at("0001", request, path) as database:
        yield database


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
