"""The lock of the audit log on PostgreSQL: held until the transaction ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from gpuherd.adapters.stores.audit_store import lock_audit_log
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.audit import AuditRecord

pytestmark = pytest.mark.postgres

RECORD = AuditRecord(SystemClock().now(), "key", "create", "inst_1", "", "", "")


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


def held(connection: sa.Connection) -> int:
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    return int(connection.exec_driver_sql(query).scalar_one())


def test_the_lock_is_held_until_the_transaction_ends(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        for _ in range(2):
            with connection.begin():
                for _ in range(3):
                    lock_audit_log(connection, RECORD)
                assert held(connection) == 1
            with connection.begin():
                assert held(connection) == 0


def test_a_lock_that_went_with_a_savepoint_is_taken_again(engine: sa.Engine) -> None:
    with engine.connect() as connection, connection.begin():
        savepoint = connection.begin_nested()
        lock_audit_log(connection, RECORD)
        savepoint.rollback()
        assert held(connection) == 0
        lock_audit_log(connection, RECORD)
        assert held(connection) == 1
