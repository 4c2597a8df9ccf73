"""Migration 27 keeps how long the products took that an older gpuherd has rented."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import instance
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.adapters.stores.row_codec import instance_row
from gpuherd.domain.instance.launch_spec import LaunchSpec
from tests.adapters.sql.schema.old_database import BOTH, left_at
from tests.support.builders import PRODUCT, a_running_instance, an_instance
from tests.support.fake_clock import START, FakeClock


@pytest.fixture(params=BOTH)
def old(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    """A database as the version before left it."""
    with left_at("0026", request, path) as database:
        yield database


def rent(connection: sa.Connection) -> None:
    wish = LaunchSpec("4090", "101")
    ready = a_running_instance(1, wish=wish, ready_at=START + timedelta(seconds=70))
    for it in (ready, an_instance(2, wish=wish), an_instance(3, wish=wish, ready_at=START)):
        row = {key: value for key, value in instance_row(it).items() if key != "rented_product"}
        connection.execute(sa.insert(instance).values(**row, version=0))


async def test_what_was_rented_before_counts_under_the_name_of_its_product(old: Database) -> None:
    old.write_now(rent)
    migrate(old)
    instances = SqlInstances(old, FakeClock())
    assert await instances.ready_times_s(PRODUCT) == [70.0]
    assert await instances.ready_times_s("4090") == []
