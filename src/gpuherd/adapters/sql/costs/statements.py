"""The questions that a report asks of the ledger. Each is built once: what differs from request to request is
a parameter, see `parameters`."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.costs import clip
from gpuherd.adapters.sql.schema.cost_tables import (
    IS_OPEN,
    cost_centre,
    ledger_day,
    ledger_label,
    ledger_subject,
    meter,
)
from gpuherd.domain.costs.span import CostKind
from gpuherd.ports.costs import CostQuery, GroupBy

# What days do not know apart.
BY_SPAN = frozenset({GroupBy.INSTANCE, GroupBy.LINEAGE})
_IS_BOUND = cost_centre.c.owner.is_not(None)
_ZERO = clip.number(0)
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
            sa.func.sum(clip.ENDED_AMOUNT).label("amount"),
            sa.func.sum(clip.ENDED_DOUBT).label("doubt"),
            sa.func.sum(clip.late(clip.ENDED_AMOUNT)).label("after_end"),
        )
        .select_from(spans(by))
        .where(clip.ENDED_IN_PERIOD, *whose_costs(is_owned))
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
            sa.func.sum(clip.OPEN_AMOUNT).label("amount"),
            sa.func.sum(clip.OPEN_DOUBT).label("doubt"),
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
        (clip.ENDED_IN_PERIOD, clip.SPAN_AMOUNT, clip.SPAN_DOUBT, clip.late(clip.SPAN_AMOUNT), _ZERO),
        (IS_OPEN, clip.OPEN_AMOUNT, clip.OPEN_DOUBT, _ZERO, meter.c.rate_nusd_h),
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
    summed: dict[str, clip.Number] = {
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
                sa.and_(sums["hourly"] != _ZERO, clip.PERIOD_GOES_ON),
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
