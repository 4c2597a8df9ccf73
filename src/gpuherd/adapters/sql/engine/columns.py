"""Times as columns hold them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Return a moment as whole microseconds since 1970: sortable, exact, the same in every database."""
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the moment that `to_micros` wrote."""
    return EPOCH + timedelta(microseconds=micros)


class Moment(TypeDecorator[datetime]):
    """An aware UTC time."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_micros(value)


class QueueMoment(TypeDecorator[datetime]):
    """A time in the queue's table: PGQueuer's own type on PostgreSQL, ours on SQLite."""

    impl = sa.BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.TIMESTAMP(timezone=True))
        return dialect.type_descriptor(sa.BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | int | None:
        return value if value is None or dialect.name == "postgresql" else to_micros(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return value if value is None or isinstance(value, datetime) else from_micros(value)
