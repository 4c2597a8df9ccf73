"""Rate limits and the circuit breaker that replicas share, as rows of a PostgreSQL database.

A row is read, thought about here, and written only if nobody has written it meanwhile (compare and swap).
Each statement is a transaction of its own: no lock is ever held by a process that might stop in the
middle.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.service_tables import budget
from gpuherd.adapters.sql.sql_types import insert_into
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.resilience.circuit_breaker import SharedBreakerState
from gpuherd.resilience.shared_rate_limit import (
    Limit,
    ReturnedTokens,
    TokenLease,
    TokenLeaseBucket,
)

BREAKER_ROW = "breaker"


# So often others may be faster; each time one of them gets on.
SWAP_ATTEMPTS_MAX = 50


_NOW: sa.ColumnElement[int] = sa.literal_column("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


@dataclass(frozen=True)
class _Row:
    version: int
    doc: dict[str, Any] | None
    now: int
    age_s: float


class SqlSharedLimits:
    """The port `SharedLimits`."""

    def __init__(self, database: Database):
        self._database = database

    async def lease(
        self, name: str, limit: Limit, wanted: int, returned: ReturnedTokens | None = None
    ) -> TokenLease:
        return await self._change(name, limit, lambda bucket: bucket.lease(wanted, returned))

    async def throttle(self, name: str, limit: Limit, pause_s: float) -> TokenLease:
        return await self._change(name, limit, lambda bucket: bucket.throttle(pause_s))

    async def look(self, name: str, limit: Limit) -> TokenLease:
        row = await self._database.read(partial(_read, name=name))
        return TokenLeaseBucket(limit, row.doc, row.age_s).lease(0)

    async def _change(
        self, name: str, limit: Limit, change: Callable[[TokenLeaseBucket], TokenLease]
    ) -> TokenLease:
        def work(connection: sa.Connection) -> TokenLease:
            own = connection.execution_options(isolation_level="AUTOCOMMIT")
            for _ in range(SWAP_ATTEMPTS_MAX):
                row = _read(own, name)
                bucket = TokenLeaseBucket(limit, row.doc, row.age_s)
                leased = change(bucket)
                if _compare_and_swap(own, name, row, bucket.doc()):
                    return leased
            raise StoreUnavailable("too many replicas want the same limit at once")

        # Beside the writer: there it would wait for, and hold up, what other work is committed with it.
        return await self._database.read(work)


class SqlBreakerStore:
    """The port `BreakerStore`."""

    def __init__(self, database: Database):
        self._database = database

    async def read(self) -> tuple[int, SharedBreakerState]:
        row = await self._database.read(partial(_read, name=BREAKER_ROW))
        if row.doc is None:
            return 0, SharedBreakerState()
        told = SharedBreakerState(**row.doc)
        rest_s, open_s = max(0.0, told.rest_s - row.age_s), told.open_s + row.age_s
        return row.version, SharedBreakerState(told.is_open, rest_s, told.growth, open_s)

    async def write(self, shared_state: SharedBreakerState, number: int) -> bool:
        def work(connection: sa.Connection) -> bool:
            own = connection.execution_options(isolation_level="AUTOCOMMIT")
            row = _read(own, BREAKER_ROW)
            return row.version == number and _compare_and_swap(own, BREAKER_ROW, row, asdict(shared_state))

        return await self._database.read(work)


def _read(connection: sa.Connection, name: str) -> _Row:
    found = connection.execute(sa.select(budget, _NOW.label("now")).where(budget.c.name == name)).first()
    if found is None:
        return _Row(0, None, connection.execute(sa.select(_NOW)).scalar_one(), 0.0)
    # Should their clock have been set back, no time has passed.
    return _Row(found.version, json.loads(found.doc), found.now, max(0, found.now - found.at) / 1e6)


def _compare_and_swap(connection: sa.Connection, name: str, row: _Row, doc: dict[str, Any]) -> bool:
    """Put the document in the place of the one that was read; False if that is not there any more."""
    written = {"version": row.version + 1, "at": row.now, "doc": json.dumps(doc)}
    if row.doc is None:
        change: sa.Insert | sa.Update = (
            insert_into(connection, budget).values(name=name, **written).on_conflict_do_nothing()
        )
    else:
        is_same = (budget.c.name == name, budget.c.version == row.version)
        change = sa.update(budget).where(*is_same).values(**written)
    return connection.execute(change.returning(budget.c.version)).first() is not None
