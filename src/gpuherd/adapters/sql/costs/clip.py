"""What a span costs within a period, as SQL: the same arithmetic as `domain/costs/period.py`.

Periods are parameters, not text, so that a statement is compiled once and not for each request.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import to_micros
from gpuherd.adapters.sql.schema.cost_tables import meter
from gpuherd.domain.costs.period import Period

Number = sa.ColumnElement[int]


def moment(name: str) -> Number:
    """Return a moment that is given with each execution, as the whole number that it is stored as."""
    return sa.bindparam(name, type_=sa.BigInteger)


BEGIN, END = moment("period_begin"), moment("period_end")
NOW, SEEN_AT = moment("now_at"), moment("seen_at")
# The same as `Period.goes_on_at`.
PERIOD_GOES_ON = sa.and_(BEGIN <= NOW, NOW <= END)


def moments(period: Period, now: datetime, seen_at: datetime) -> dict[str, int]:
    """Return the values of all of these."""
    return {
        "period_begin": to_micros(period.begin),
        "period_end": to_micros(period.end),
        "now_at": to_micros(now),
        "seen_at": to_micros(seen_at),
    }


def micros(column: sa.ColumnElement[Any]) -> Number:
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


def overlap(lo: Number, hi: Number) -> Number:
    """Return how much of the time between two moments lies in the period."""
    return greatest(number(0), least(hi, END) - greatest(lo, BEGIN))


def edge_doubt(lo: sa.Column[Any], hi: sa.Column[Any]) -> Number:
    inside = sa.and_(micros(lo) >= BEGIN, micros(hi) <= END)
    return sa.case((inside, micros(hi) - middle(lo, hi)), else_=overlap(micros(lo), micros(hi)))


def cost(time: Number) -> Number:
    """Return what a time costs at the rate of a span, exactly, and without a number of more than 64 bits."""
    seconds, rest = time // number(1_000_000), time % number(1_000_000)
    units = meter.c.rate_nusd_h * seconds
    return units // number(3600) + (
        units % number(3600) * number(1_000_000) + meter.c.rate_nusd_h * rest
    ) // number(3_600_000_000)


BEGAN = middle(meter.c.began_lo, meter.c.began_hi)
ENDED = middle(meter.c.ended_lo, meter.c.ended_hi)
ENDED_IN_PERIOD = sa.and_(
    meter.c.ended_lo.is_not(None), micros(meter.c.ended_hi) > BEGIN, micros(meter.c.began_lo) < END
)
ENDED_AMOUNT = cost(overlap(BEGAN, ENDED))


def _ended_doubt() -> Number:
    began = edge_doubt(meter.c.began_lo, meter.c.began_hi)
    ended = edge_doubt(meter.c.ended_lo, meter.c.ended_hi)
    return _rounded_up(began + ended)


def _open_doubt() -> Number:
    """Return the doubt of a span that goes on: it may have ended as soon as it was last seen."""
    began = edge_doubt(meter.c.began_lo, meter.c.began_hi)
    sure = sa.func.coalesce(micros(meter.c.sure_until), SEEN_AT)
    unseen = overlap(greatest(BEGAN, sure), NOW)
    return _rounded_up(began + unseen)


def _rounded_up(time: Number) -> Number:
    return sa.case((time > number(0), cost(time) + number(1)), else_=number(0))


ENDED_DOUBT = _ended_doubt()
OPEN_AMOUNT = cost(overlap(BEGAN, NOW))
OPEN_DOUBT = _open_doubt()


# Most spans lie in the period as a whole, and what these came to was written down when they ended.
_IS_WHOLE = sa.and_(
    micros(meter.c.began_lo) >= BEGIN, micros(meter.c.began_hi) <= END, micros(meter.c.ended_hi) <= END
)
SPAN_AMOUNT = sa.case((_IS_WHOLE, meter.c.amount_nusd), else_=ENDED_AMOUNT)
SPAN_DOUBT = sa.case((_IS_WHOLE, meter.c.doubt_nusd), else_=ENDED_DOUBT)


def late(amount: Number) -> Number:
    """Return how much of an amount came after the wanted end: known of the whole span, it lies at its end."""
    at_most = sa.case((meter.c.after_end_nusd < amount, meter.c.after_end_nusd), else_=amount)
    return sa.case((micros(meter.c.ended_hi) <= END, at_most), else_=number(0))
