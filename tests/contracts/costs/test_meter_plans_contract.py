"""What every list asks of the ledger is answered from an index of few rows, however long the ledger is."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.ledger_tables import meter
from gpuherd.adapters.stores.meter_writes import read_meter_state
from tests.support.fake_clock import START

SPANS = 2000
SPAN = {
    "kind": "gpu",
    "rate_nusd_h": 200_000_000,
    "price_from": "rental",
    "began_lo": START,
    "began_hi": START,
    "began_by": "running",
    "ended_by": "",
    "subject_id": 1,
    "centre_id": 1,
}


@pytest.fixture
def asked(database) -> list[str]:
    """The questions about spans of `read_meter_state`, as they go to this database."""
    if not isinstance(database, Database):
        pytest.skip("there is nothing to plan in memory")
    found: list[str] = []

    def note(_connection, _cursor, statement, parameters, *_) -> None:
        if "FROM meter" in statement:
            found.append(_with_values(statement, parameters))

    engines = {database._write_engine, database._read_engine}
    for engine in engines:
        sa.event.listen(engine, "before_cursor_execute", note)
    database._read(read_meter_state)
    for engine in engines:
        sa.event.remove(engine, "before_cursor_execute", note)
    return found


def _with_values(statement: str, parameters) -> str:
    if isinstance(parameters, dict):
        return statement % {name: f"'{value}'" for name, value in parameters.items()}
    for value in parameters:
        statement = statement.replace("?", f"'{value}'", 1)
    return statement


def plan(connection: sa.Connection, statement: str) -> str:
    if connection.dialect.name == "sqlite":
        return "\n".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}"))
    # Of an empty table all looks cost the same: let many spans go on, none of which is in doubt.
    connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
    connection.execute(sa.delete(meter))
    connection.execute(sa.insert(meter), [{**SPAN, "cloud_id": f"cloud-{n}"} for n in range(SPANS)])
    connection.exec_driver_sql("ANALYZE meter")
    return "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN {statement}"))


def test_what_is_without_a_price_or_in_doubt_is_found_by_its_index(database, asked):
    plans = [database.write_now(lambda c, it=it: plan(c, it)) for it in asked]
    assert len(plans) == 2
    assert "meter_unpriced" in plans[0]
    assert "meter_doubtful" in plans[1]
