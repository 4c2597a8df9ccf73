"""Limits of a key on what its instances use, checked in the transaction that would use more."""

from __future__ import annotations

from decimal import Decimal

import sqlalchemy as sa

from gpuherd.adapters.sql.mapping import MICROS
from gpuherd.adapters.sql.schema import instance
from gpuherd.domain.quota import Usage, check_quota, usage_of
from gpuherd.ports.store import Change


def check_limits(connection: sa.Connection, change: Change) -> None:
    """Raise `QuotaExceeded` if this change would take its owner over the limit.

    Two of them at once cannot both be the last that fits: SQLite has one writer, and on PostgreSQL whoever
    has limits does a deed, which holds the lock of the audit log until the commit.
    """
    if change.limits is None or not change.limits.on_rentals:
        return
    it = change.instance
    # In this form all is in the partial index: its condition word for word, and no column but its own.
    held = sa.select(_GPUS, _USD).where(instance.c.owner == it.owner, sa.text("gpus > 0"))
    own = sa.select(_GPUS, _USD).where(instance.c.id == it.id)
    (gpus, micro_usd), (own_gpus, own_usd) = (connection.execute(query).one() for query in (held, own))
    used = Usage(int(gpus - own_gpus), Decimal(int(micro_usd - own_usd)) / MICROS)
    check_quota(change.limits, used, usage_of(it))


_GPUS = sa.func.coalesce(sa.func.sum(instance.c.gpus), 0)
_USD = sa.func.coalesce(sa.func.sum(instance.c.micro_usd), 0)
