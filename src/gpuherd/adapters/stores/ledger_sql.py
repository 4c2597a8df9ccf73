"""The SQL of the ledger's sums."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.ledger_tables import (
    IS_OPEN,
    cost_centre,
    ledger_day,
    ledger_label,
    ledger_subject,
    meter,
)
from gpuherd.adapters.sql.sql_types import to_micros
from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import CostKind
from gpuherd.ports.costs_port import CostQuery, GroupBy

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


# What days do not know apart.
BY_SPAN = frozenset({GroupBy.INSTANCE, GroupBy.LINEAGE})


_IS_BOUND = cost_centre.c.owner.is_not(None)
_ZERO = number(0)


# What each group has, and all groups together.
_SUMMED = ("amount", "doubt", "after_end", "unbound", *CostKind)


def parameters(query: CostQuery) -> dict[str, Any]:
    """Return what all statements need to know of a query, beside moments."""
    return {"owner": query.owner, "label": query.label, "groups_max": query.groups_max}


def whose(query: CostQuery) -> list[sa.ColumnElement[bool]]:
    return whose_costs(query.owner is not None)


def whose_costs(is_owned: bool) -> list[sa.ColumnElement[bool]]:
    return [cost_centre.c.owner == sa.bindparam("owner", type_=sa.Text)] if is_owned else []


def value_of(by: GroupBy) -> sa.ColumnElement[Any]:
    """Return what a report is divided by."""
    match by:
        case GroupBy.PRODUCT:
            column: sa.ColumnElement[Any] = cost_centre.c.product_name
        case GroupBy.REGION:
            column = cost_centre.c.region
        case GroupBy.LABEL:
            column = ledger_label.c.value
        case GroupBy.LINEAGE:
            return sa.func.coalesce(ledger_subject.c.lineage, ledger_subject.c.instance_id)
        case _:
            return cost_centre.c.owner
    # What is nobody's has no value, whatever it is.
    return sa.case((cost_centre.c.owner.is_(None), None), else_=column)


def centres(by: GroupBy, source: sa.FromClause, centre_id: sa.ColumnElement[int]) -> sa.FromClause:
    """Join the cost centres of rows, and the label that is asked for."""
    joined = source.join(cost_centre, cost_centre.c.id == centre_id)
    if by is GroupBy.LABEL:
        key = ledger_label.c.key == sa.bindparam("label", type_=sa.Text)
        joined = joined.outerjoin(ledger_label, sa.and_(ledger_label.c.centre_id == cost_centre.c.id, key))
    return joined


def spans(by: GroupBy) -> sa.FromClause:
    joined = centres(by, meter, meter.c.centre_id)
    if by is GroupBy.LINEAGE:
        joined = joined.join(ledger_subject, ledger_subject.c.id == meter.c.subject_id)
    return joined


@cache
def day_sums(by: GroupBy, is_owned: bool) -> sa.Select[Any]:
    """Sum up whole days, from `first_day` up to `last_day`, which is excluded."""
    value = sa.cast(ledger_day.c.day, sa.Text) if by is GroupBy.DAY else value_of(by)
    first, last = (sa.bindparam(name, type_=sa.Date) for name in ("first_day", "last_day"))
    return (
        sa.select(
            value.label("grouped"),
            ledger_day.c.kind,
            _IS_BOUND.label("bound"),
            sa.func.sum(ledger_day.c.amount_nusd).label("amount"),
            sa.func.sum(ledger_day.c.doubt_nusd).label("doubt"),
            sa.func.sum(ledger_day.c.after_end_nusd).label("after_end"),
        )
        .select_from(centres(by, ledger_day, ledger_day.c.centre_id))
        .where(ledger_day.c.day >= first, ledger_day.c.day < last, *whose_costs(is_owned))
        .group_by("grouped", ledger_day.c.kind, "bound")
    )


@cache
def ended_sums(by: GroupBy, is_owned: bool) -> sa.Select[Any]:
    """Sum up the spans that have ended; all of them belong to `day`, if it is days that are asked for."""
    value = sa.bindparam("day", type_=sa.Text) if by is GroupBy.DAY else value_of(by)
    return (
        sa.select(
            value.label("grouped"),
            meter.c.kind,
            _IS_BOUND.label("bound"),
            sa.func.sum(ENDED_AMOUNT).label("amount"),
            sa.func.sum(ENDED_DOUBT).label("doubt"),
            sa.func.sum(late(ENDED_AMOUNT)).label("after_end"),
        )
        .select_from(spans(by))
        .where(ENDED_IN_PERIOD, *whose_costs(is_owned))
        .group_by("grouped", meter.c.kind, "bound")
    )


@cache
def open_sums(by: GroupBy, is_owned: bool) -> sa.Select[Any]:
    """Sum up the spans that go on."""
    return (
        sa.select(
            value_of(by).label("grouped"),
            meter.c.kind,
            _IS_BOUND.label("bound"),
            sa.func.sum(OPEN_AMOUNT).label("amount"),
            sa.func.sum(OPEN_DOUBT).label("doubt"),
            _ZERO.label("after_end"),
            sa.func.sum(meter.c.rate_nusd_h).label("hourly"),
        )
        .select_from(spans(by))
        .where(IS_OPEN, *whose_costs(is_owned))
        .group_by("grouped", meter.c.kind, "bound")
    )


@cache
def hourly_sum(is_owned: bool) -> sa.Select[Any]:
    """Sum up what all that goes on costs an hour."""
    source = meter.join(cost_centre, cost_centre.c.id == meter.c.centre_id) if is_owned else meter
    rates = sa.func.coalesce(sa.func.sum(meter.c.rate_nusd_h), 0)
    return sa.select(rates).select_from(source).where(IS_OPEN, *whose_costs(is_owned))


@cache
def sums_by_span(by: GroupBy, is_owned: bool) -> sa.Select[Any]:
    """Sum up by what only spans know: the dearest `groups_max`, each row with the sums and number of all."""
    if by is GroupBy.INSTANCE:
        # Not by its index, which is in no order of time: most spans are not in the period.
        value: sa.ColumnElement[Any] = sa.func.nullif(meter.c.instance_id, sa.literal_column("''"))
        source: sa.FromClause = centres(by, meter, meter.c.centre_id) if is_owned else meter
    else:
        value, source = value_of(by), spans(by)
    amounts = (
        (ENDED_IN_PERIOD, SPAN_AMOUNT, SPAN_DOUBT, late(SPAN_AMOUNT), _ZERO),
        (IS_OPEN, OPEN_AMOUNT, OPEN_DOUBT, _ZERO, meter.c.rate_nusd_h),
    )
    parts = sa.union_all(
        *(
            sa.select(
                value.label("grouped"),
                meter.c.kind.label("kind"),
                meter.c.instance_id.is_(None).label("is_unbound"),
                amount.label("amount"),
                doubt.label("doubt"),
                after_end.label("after_end"),
                hourly.label("hourly"),
            )
            .select_from(source)
            .where(when, *whose_costs(is_owned))
            for when, amount, doubt, after_end, hourly in amounts
        )
    ).subquery("parts")
    part = parts.c
    # A volume has no instance, and is nobody's mistake for that.
    is_waste = sa.and_(part.is_unbound, part.kind != CostKind.VOLUME.value)
    summed: dict[str, Number] = {
        "amount": part.amount,
        "doubt": part.doubt,
        "after_end": part.after_end,
        "hourly": part.hourly,
        "unbound": sa.case((is_waste, part.amount), else_=_ZERO),
        **{it.value: sa.case((part.kind == it.value, part.amount), else_=_ZERO) for it in CostKind},
    }
    sums = {name: sa.func.sum(it) for name, it in summed.items()}
    groups = (
        sa.select(part.grouped, *(it.label(name) for name, it in sums.items()))
        .group_by(part.grouped)
        .having(
            sa.or_(
                *(sums[it] != _ZERO for it in ("amount", "doubt", "after_end")),
                # What goes on now is in no other time than now.
                sa.and_(sums["hourly"] != _ZERO, PERIOD_GOES_ON),
            )
        )
        .subquery("groups")
    )
    return (
        sa.select(
            groups,
            *(sa.func.sum(groups.c[name]).over().label(f"all_{name}") for name in _SUMMED),
            sa.func.count().over().label("groups"),
        )
        .order_by(groups.c.amount.desc(), groups.c.grouped.is_(None), groups.c.grouped)
        .limit(sa.bindparam("groups_max", type_=sa.Integer))
    )
