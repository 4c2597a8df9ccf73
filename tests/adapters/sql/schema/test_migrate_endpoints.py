"""A database from before there were kinds of endpoint: those that it has are webhooks, as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.sql.sql_types import to_micros
from gpuherd.adapters.stores.webhook_store import SqlWebhookEndpoints
from gpuherd.domain.webhooks.webhook_endpoint import EndpointKind
from tests.adapters.sql.schema.old_database import BOTH, left_at
from tests.support.fake_clock import START

OLD = sa.text(
    "INSERT INTO webhook_endpoint (id, url, created_at, root, events, label, generation, previous_root,"
    " disabled_reason) VALUES (:id, 'https://example.com/', :at, 'r', '', '', 1, '', '')"
)


@pytest.fixture(params=BOTH)
def old(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    with left_at("0020", request, path) as database:
        yield database


def test_an_endpoint_from_before_or_of_an_older_process_is_a_webhook(old: Database) -> None:
    asyncio.run(old.write(lambda c: c.execute(OLD, {"id": "ep_1", "at": to_micros(START)})))
    migrate(old)
    # A process of the version before goes on writing as it did.
    asyncio.run(old.write(lambda c: c.execute(OLD, {"id": "ep_2", "at": to_micros(START)})))
    found = asyncio.run(SqlWebhookEndpoints(old).list_all())
    assert [(it.id, it.kind) for it in found] == [
        ("ep_1", EndpointKind.WEBHOOK),
        ("ep_2", EndpointKind.WEBHOOK),
    ]
