"""What old machines have cost beside their successors, by the ledger alone: it outlives the instances."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.costs import clip
from gpuherd.adapters.sql.costs.statements import parameters, whose_costs
from gpuherd.adapters.sql.schema.cost_tables import cost_centre, ledger_subject, meter
from gpuherd.adapters.sql.schema.tables import instance
from gpuherd.ports.costs import CostQuery

_SUBJECT = ledger_subject.c


def sum_overlap(connection: sa.Connection, query: CostQuery, now: datetime) -> int:
    """Sum up what predecessors have cost in the period since their heirs were usable."""
    values = parameters(query) | clip.moments(query.period, now, now)
    return int(connection.execute(overlap_sum(query.owner is not None), values).scalar_one())


@cache
def overlap_sum(is_owned: bool) -> sa.Select[Any]:
    """Sum up the same as `domain/costs/overlap.py`, where nothing but the sum leaves the database."""
    old = _with_heirs()
    end = sa.case((meter.c.ended_lo.is_(None), clip.NOW), else_=clip.ENDED)
    time = clip.overlap(clip.greatest(clip.BEGAN, old.c.heir_at), end)
    source = old.join(meter, meter.c.subject_id == old.c.id).join(
        cost_centre, cost_centre.c.id == meter.c.centre_id
    )
    return (
        sa.select(sa.func.coalesce(sa.func.sum(clip.cost(time)), 0))
        .select_from(source)
        .where(old.c.heir_at.is_not(None), *whose_costs(is_owned))
    )


def _with_heirs() -> sa.Subquery:
    """Return all members of lineages that could ever be used, and since when the next one can be."""
    heir = ledger_subject.alias("heir")
    # The first of a lineage had none when its first span was written.
    firsts = sa.select(heir.c.lineage).where(_is_heir(heir), _in_period(heir))
    members = sa.union_all(
        _members(_SUBJECT.lineage).where(_is_heir(ledger_subject), _in_period(ledger_subject)),
        _members(_SUBJECT.key).where(
            _SUBJECT.lineage.is_(None), _SUBJECT.key.in_(firsts), _in_period(ledger_subject)
        ),
    ).subquery("member")
    usable_next = sa.func.lead(members.c.usable).over(
        partition_by=members.c.lineage, order_by=(members.c.usable, members.c.id)
    )
    found = sa.select(members.c.id, usable_next.label("heir_at")).where(members.c.usable.is_not(None))
    return found.subquery("old")


def _is_heir(subject: sa.FromClause) -> sa.ColumnElement[bool]:
    # Unlike a comparison with null this uses the index wherever few have a lineage.
    return subject.c.lineage > sa.literal_column("''", sa.Text)


def _in_period(subject: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(
        clip.micros(subject.c.first_at) < clip.END,
        sa.or_(subject.c.last_at.is_(None), clip.micros(subject.c.last_at) > clip.BEGIN),
    )


def _members(lineage: sa.ColumnElement[str]) -> sa.Select[Any]:
    # The ledger learns it when a span ends; of what goes on, its instance knows.
    usable = sa.func.coalesce(clip.micros(_SUBJECT.usable_at), clip.micros(instance.c.ready_at))
    source = ledger_subject.outerjoin(instance, instance.c.id == _SUBJECT.instance_id)
    return sa.select(_SUBJECT.id, lineage.label("lineage"), usable.label("usable")).select_from(source)
