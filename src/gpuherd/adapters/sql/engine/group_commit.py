"""Several pieces of work in one transaction, none of which may take another with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from gpuherd.adapters.sql.failures import is_broken, own_affair
from gpuherd.adapters.sql.prepared import insert_waiting
from gpuherd.adapters.sql.transactions import FileTransactions, ServerTransactions

Work = Callable[[Connection], Any]
# What it has returned, or what went wrong with it.
Outcome = tuple[Any, Exception | None]
Transactions = FileTransactions | ServerTransactions


class _WorkFailed(Exception):
    """One piece of work has failed by itself: the connection is well, and the others deserve another run."""

    def __init__(self, error: Exception):
        super().__init__()
        self.error = error


def run_together(transactions: Transactions, batch: list[Work], *, sure: bool = True) -> list[Outcome]:
    """Run all in one transaction; `StoreUnavailable` if none could be begun."""
    try:
        with transactions.open(sure=sure) as connection:
            outcomes: list[Outcome] = [(_run(connection, work), None) for work in batch]
            _run(connection, insert_waiting)
            return outcomes
    except _WorkFailed as failed:
        if len(batch) == 1:
            return [(None, failed.error)]
    # Savepoints cost more than most of the work behind them, so they are kept for when they are needed.
    with transactions.open(sure=sure) as connection:
        return [_run_apart(connection, work) for work in batch]


def _run(connection: Connection, work: Work) -> Any:
    try:
        return work(connection)
    except Exception as error:
        if is_broken(error):
            raise
        raise _WorkFailed(own_affair(error)) from error


def _run_apart(connection: Connection, work: Work) -> Outcome:
    """Run one piece of work behind a savepoint, and return its result or what went wrong with it."""
    savepoint = connection.begin_nested()
    try:
        result = _run(connection, work)
        savepoint.commit()
    except _WorkFailed as failed:
        savepoint.rollback()
        return None, failed.error
    return result, None
