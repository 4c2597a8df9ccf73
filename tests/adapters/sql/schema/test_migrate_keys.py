"""Migration 4 keeps what an older gpuherd has accepted, claims and all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.sql.sql_types import to_micros
from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.adapters.stores.row_codec import instance_row
from gpuherd.ports.access_port import IdempotencyClaim
from tests.adapters.sql.schema.old_database import BOTH, LATER_COLUMNS, left_at
from tests.support.builders import an_instance
from tests.support.fake_clock import START, FakeClock

CLAIM = IdempotencyClaim("admin", "run-7", "fingerprint")
NEW = ("owner", "gpus", "micro_usd", *LATER_COLUMNS)


@pytest.fixture(params=BOTH)
def old(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    """A database as the version before keys left it."""
    with left_at("0003", request, path) as database:
        yield database


def accept(connection: sa.Connection) -> None:
    """Write an instance and its claim with the columns that there were."""
    row = {key: value for key, value in instance_row(an_instance(1)).items() if key not in NEW}
    row |= {"created_at": to_micros(START), "version": 0}
    row["doc"] = row["doc"].replace('"expected_usd":null,', "")
    said = {name: it for name, it in vars(CLAIM).items() if name != "earlier"}
    claim = {**said, "instance_id": row["id"], "created_at": to_micros(START)}
    for table, values in (("instance", row), ("claim", claim)):
        names = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        connection.execute(sa.text(f"INSERT INTO {table} ({names}) VALUES ({places})"), values)


@pytest.mark.proves("F58")
async def test_instances_become_the_admin_s_and_claims_stay(old: Database) -> None:
    old.write_now(accept)
    migrate(old)
    instances = SqlInstances(old, FakeClock())
    known = await instances.claimed(CLAIM)
    assert known == an_instance(1)
    assert known.owner == "admin"
    assert await instances.claimed_operation(CLAIM) is None
