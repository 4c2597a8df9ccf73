"""The queue's table on SQLite, row by row: times are whole microseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from pgqueuer.domain.models import Job
from sqlalchemy import Connection, CursorResult, Row

T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TIMES = ("created", "updated", "heartbeat", "execute_after")


class TransactionalDatabase(Protocol):
    """What this adapter needs of the store's database: transactions are plain functions of a connection."""

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction of the single writer; return only after it is committed."""
        ...

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a reader's connection."""
        ...


def to_micros(moment: datetime) -> int:
    """Return a moment as the table keeps it."""
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the moment that `to_micros` wrote."""
    return EPOCH + micros * MICROSECOND


def job_of(row: Row[Any]) -> Job:
    """Return a row as PGQueuer's own model."""
    fields: dict[str, Any] = dict(row._mapping)
    for name in TIMES:
        fields[name] = from_micros(fields[name])
    return Job.model_validate(fields)


def execute(connection: Connection, sql: str, **values: Any) -> CursorResult[Any]:
    """Run a statement; a list stands for as many values as it has (`IN :ids`).

    The driver's own SQL, because the dozen statements of a run cost three times as much through `text`.
    """
    spread: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            spread |= {f"{name}_{n}": item for n, item in enumerate(value)}
            sql = sql.replace(f":{name}", "(" + ", ".join(f":{name}_{n}" for n in range(len(value))) + ")")
        else:
            spread[name] = value
    return connection.exec_driver_sql(sql, spread)


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Highest priority first; inside one priority, oldest first."""
    return sorted(jobs, key=lambda job: (-job.priority, job.id))
