"""Events that belong to no instance, in SQL: the account is a subject with a sequence of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql import job_rows
from gpuherd.adapters.sql.change_notice import note_change
from gpuherd.adapters.sql.mapping import delivery_row, event_row
from gpuherd.adapters.sql.schema import delivery, event
from gpuherd.domain.copying import replace
from gpuherd.domain.events import ACCOUNT
from gpuherd.ports.orphans import AccountNews


def append_account_events(connection: sa.Connection, news: Sequence[AccountNews], now: datetime) -> None:
    """Number the events and write them down with their webhooks, in whichever transaction this is."""
    if not news:
        return
    note_change(connection, ACCOUNT)
    last = sa.select(sa.func.max(event.c.sequence)).where(event.c.instance_id == ACCOUNT)
    first = (connection.execute(last).scalar() or 0) + 1
    numbered = [replace(it.event, instance_id=ACCOUNT, sequence=first + n) for n, it in enumerate(news)]
    connection.execute(sa.insert(event), [event_row(it) for it in numbered])
    told = [it.tell(event) for it, event in zip(news, numbered, strict=True)]
    deliveries = [delivery_row(it) for one in told for it in one.deliveries]
    if deliveries:
        connection.execute(sa.insert(delivery), deliveries)
    job_rows.insert_jobs(connection, [job for one in told for job in one.jobs], now)
