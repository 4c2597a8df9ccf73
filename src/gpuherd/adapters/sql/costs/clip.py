"""What a span costs within a period, as SQL: the same arithmetic as `domain/costs/period.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import to_micros
from gpuherd.adapters.sql.schema.cost_tables import meter
from gpuherd.domain.costs.period import Period

Number = sa.ColumnElement[int]


def micros(column: sa.Column[Any]) -> Number:
    """Return a moment as the whole number that it is stored as."""
    return sa.type_coerce(column, sa.BigInteger)


def number(value: int) -> Number:
    # As text in the statement, or PostgreSQL could not tell its type.
    return sa.literal_column(str(value), sa.BigInteger)


def least(one: Number, other: Number) -> Number:
    return sa.case((one <= other, one), else_=other)


def greatest(one: Number, other: Number) -> Number:
    return sa.case((one >= other, one), else_=other)


def middle(lo: sa.Column[Any], hi: sa.Column[Any]) -> Number:
    return micros(lo) + (micros(hi) - micros(lo)) // number(2)


def overlap(lo: Number, hi: Number, period: Period) -> Number:
    """Return how much of the time between two moments lies in a period."""
    begin, end = number(to_micros(period.begin)), number(to_micros(period.end))
    return greatest(number(0), least(hi, end) - greatest(lo, begin))


def edge_doubt(lo: sa.Column[Any], hi: sa.Column[Any], period: Period) -> Number:
    begin, end = number(to_micros(period.begin)), number(to_micros(period.end))
    inside = sa.and_(micros(lo) >= begin, micros(hi) <= end)
    return sa.case((inside, micros(hi) - middle(lo, hi)), else_=overlap(micros(lo), micros(hi), period))


def cost(time: Number) -> Number:
    """Return what a time costs at the rate of a span, exactly, and without a number of more than 64 bits."""
    seconds, rest = time // number(1_000_000), time % number(1_000_000)
    units = meter.c.rate_nusd_h * seconds
    return units // number(3600) + (
        units % number(3600) * number(1_000_000) + meter.c.rate_nusd_h * rest
    ) // number(3_600_000_000)


BEGAN = middle(meter.c.began_lo, meter.c.began_hi)
ENDED = middle(meter.c.ended_lo, meter.c.ended_hi)


def ended_amount(period: Period) -> Number:
    return cost(overlap(BEGAN, ENDED, period))


def ended_doubt(period: Period) -> Number:
    began = edge_doubt(meter.c.began_lo, meter.c.began_hi, period)
    ended = edge_doubt(meter.c.ended_lo, meter.c.ended_hi, period)
    return _rounded_up(began + ended)


def open_amount(period: Period, now: datetime) -> Number:
    return cost(overlap(BEGAN, number(to_micros(now)), period))


def open_doubt(period: Period, now: datetime, seen_at: datetime) -> Number:
    """Return the doubt of a span that goes on: it may have ended as soon as it was last seen."""
    began = edge_doubt(meter.c.began_lo, meter.c.began_hi, period)
    sure = sa.func.coalesce(micros(meter.c.sure_until), number(to_micros(seen_at)))
    unseen = overlap(greatest(BEGAN, sure), number(to_micros(now)), period)
    return _rounded_up(began + unseen)


def _rounded_up(time: Number) -> Number:
    return sa.case((time > number(0), cost(time) + number(1)), else_=number(0))
