"""A migrated PostgreSQL database for each test, copied from a template: cheaper than to migrate each.

In a conftest: `from tests.support.fresh_postgres import fresh_postgres, postgres_template  # noqa: F401`
and the same for `postgres_server`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.support.databases import migrate_postgres
from tests.support.postgres import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The name of a migrated database to copy."""
    name = postgres_server.create_database()
    # It runs a loop of its own, and there may be one around us already.
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(migrate_postgres, postgres_server.url(name)).result()
    return name


@pytest.fixture
def fresh_postgres(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    """The libpq URL of a migrated database that nobody has used."""
    name = f"{postgres_template}_{next(_numbers)}"
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{postgres_template}"')  # type: ignore[call-overload]
    yield postgres_server.url(name)
    postgres_server.drop_database(name)
