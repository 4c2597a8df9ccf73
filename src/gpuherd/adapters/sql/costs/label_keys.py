"""The keys of labels that were in use in a period."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.costs.report import instances_in
from gpuherd.adapters.sql.schema.cost_tables import cost_centre, ledger_label, ledger_subject
from gpuherd.domain.costs.period import Period
from gpuherd.ports.costs import LABEL_KEYS_MAX


def read_label_keys(
    connection: sa.Connection, period: Period, now: datetime, owner: str | None
) -> Sequence[str]:
    """Return them, those of the most instances first."""
    counted: Counter[str] = Counter()
    for there in instances_in(period, now):
        for row in connection.execute(_counted(there, owner)):
            counted[row.key] += row.instances
    return sorted(counted, key=lambda it: (-counted[it], it))[:LABEL_KEYS_MAX]


def _counted(there: sa.ColumnElement[bool], owner: str | None) -> sa.Select[tuple[str, int]]:
    subject, label = ledger_subject.c, ledger_label.c
    # Instances share their centres: those are few, and labels are read for these only.
    by_centre = (
        sa.select(subject.centre_id, sa.func.count().label("instances"))
        .where(there)
        .group_by(subject.centre_id)
        .subquery("by_centre")
    )
    joined = by_centre.join(ledger_label, label.centre_id == by_centre.c.centre_id)
    query = sa.select(label.key, sa.func.sum(by_centre.c.instances).label("instances")).group_by(label.key)
    if owner is None:
        return query.select_from(joined)
    joined = joined.join(cost_centre, cost_centre.c.id == by_centre.c.centre_id)
    return query.select_from(joined).where(cost_centre.c.owner == owner)
