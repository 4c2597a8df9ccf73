"""What budgets ask of the database is answered from indexes: it does not grow with all that ever was."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.stores.budget_store import promised_of, spending_of
from gpuherd.domain.money.budget import BudgetScope, ScopeKind
from tests.support.budgets import a_budget
from tests.support.fake_clock import START

SCOPES = {
    "all": BudgetScope(),
    "key": BudgetScope(ScopeKind.KEY, "ada"),
    "label": BudgetScope(ScopeKind.LABEL, "team", "red"),
}


def asked(database: Database, work: Any) -> list[tuple[str, Any]]:
    """Return the statements that some work sends to this database, with their parameters."""
    found: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            found.append((statement, parameters))

    engines = {database._write_engine, database._read_engine}
    for engine in engines:
        sa.event.listen(engine, "before_cursor_execute", note)
    database._read(work)
    for engine in engines:
        sa.event.remove(engine, "before_cursor_execute", note)
    return found


def planned(database: Database, statement: str, parameters: Any) -> list[str]:
    """Return how SQLite would answer."""
    question = f"EXPLAIN QUERY PLAN {statement}"
    return database.write_now(lambda c: [row[3] for row in c.exec_driver_sql(question, parameters)])


@pytest.mark.proves("B7")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("scope", SCOPES)
def test_no_sum_reads_a_whole_table(database: Any, scope: str, strict: bool) -> None:
    if not isinstance(database, Database) or not database.is_sqlite:
        pytest.skip("the planner of SQLite says it in so many words, also of empty tables")
    budget = a_budget(START, scope=SCOPES[scope], strict=strict)

    def work(connection: sa.Connection) -> None:
        spending_of(connection, budget, START)
        promised_of(connection, budget, START)

    questions = asked(database, work)
    assert len(questions) == 4
    for statement, parameters in questions:
        plan = planned(database, statement, parameters)
        # Lists are read from the newest backwards, and the first that is complete is enough.
        assert not [it for it in plan if re.fullmatch(r"SCAN (?!list_record)\w+", it)], (statement, plan)
