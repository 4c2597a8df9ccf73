"""Forget what is old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.ledger_tables import (
    bill,
    cost_centre,
    ledger_day,
    ledger_label,
    ledger_subject,
    meter,
)
from gpuherd.adapters.sql.listen_notify import record_change
from gpuherd.adapters.sql.rental_tables import (
    attempt,
    claim,
    event,
    held_plan,
    instance,
    orphan,
    sighting,
)
from gpuherd.adapters.sql.service_tables import audit, ended_session
from gpuherd.adapters.stores.audit_store import prune_some_entries
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.domain.instance.rent_attempt import OPEN_STATES
from gpuherd.ports.access_port import AuditPruning

# At once: others want to write too.
CLAIMS_AT_ONCE = 1000


INSTANCES_AT_ONCE = 100
EVENTS_AT_ONCE = 1000


# Each pruning of the audit log is an entry of its own: one a day will do.
AUDIT_PRUNE_INTERVAL = timedelta(days=1)


# No machine that was seen is its own or carries a tag of its, and none is in the ledger of orphans.
_COSTS_NOTHING = sa.not_(
    sa.or_(
        sa.exists().where(sighting.c.tagged_instance_id == instance.c.id),
        sa.exists().where(sighting.c.cloud_id == instance.c.cloud_id),
        sa.exists().where(orphan.c.cloud_id == instance.c.cloud_id, orphan.c.gone_at.is_(None)),
    )
)


class SqlRetention:
    """The port `Retention`."""

    def __init__(self, database: Database, announce: Callable[[Sequence[str]], None] = lambda _: None):
        self._database = database
        self._announce = announce

    async def prune_claims(self, before: datetime) -> int:
        old = sa.select(claim.c.scope, claim.c.key).where(claim.c.created_at < before).limit(CLAIMS_AT_ONCE)
        removal = sa.delete(claim).where(sa.tuple_(claim.c.scope, claim.c.key).in_(old))
        pruned = 0
        while removed := await self._database.write(lambda c: c.execute(removal).rowcount):
            pruned += removed
        return pruned

    async def prune_instances(self, before: datetime) -> int:
        return await self._prune(before, instance.c.status == Status.DELETED.value)

    async def prune_failed_instances(self, before: datetime) -> int:
        return await self._prune(before, sa.and_(instance.c.status == Status.FAILED.value, _COSTS_NOTHING))

    async def _prune(self, before: datetime, over: sa.ColumnElement[bool]) -> int:
        pruned = 0
        while gone := await self._database.write(lambda c: _prune_some(c, before, over)):
            self._announce(gone)
            pruned += len(gone)
        return pruned

    async def prune_account_events(self, before: datetime) -> int:
        # The next one gets the number after the latest, so that one stays.
        newer = event.alias()
        followed = sa.exists().where(newer.c.instance_id == ACCOUNT, newer.c.sequence > event.c.sequence)
        old = sa.select(event.c.id).where(event.c.instance_id == ACCOUNT, event.c.at < before, followed)
        removal = sa.delete(event).where(event.c.id.in_(old.limit(EVENTS_AT_ONCE)))
        pruned = 0
        while removed := await self._database.write(lambda c: c.execute(removal).rowcount):
            pruned += removed
        return pruned

    async def prune_sessions(self, before: datetime) -> int:
        removal = sa.delete(ended_session).where(ended_session.c.expires_at < before)
        return await self._database.write(lambda c: c.execute(removal).rowcount)

    async def prune_plans(self, before: datetime) -> int:
        removal = sa.delete(held_plan).where(held_plan.c.expires_at < before)
        return await self._database.write(lambda c: c.execute(removal).rowcount)

    async def prune_costs(self, before: datetime) -> int:
        pruned = 0
        while removed := await self._database.write(lambda c: prune_some_spans(c, before)):
            pruned += removed
        await self._database.write(lambda c: prune_days(c, before))
        return pruned

    async def prune_audit(self, before: datetime, now: datetime) -> AuditPruning:
        oldest = sa.select(audit.c.at).order_by(audit.c.n).limit(1)
        oldest_at = await self._database.read(lambda c: c.execute(oldest).scalar())
        if oldest_at is None or oldest_at >= before - AUDIT_PRUNE_INTERVAL:
            return AuditPruning(0)
        pruned = 0
        while True:
            done = await self._database.write(lambda c: prune_some_entries(c, before, now), audited=True)
            pruned += done.count
            if not done.count:
                return AuditPruning(pruned, done.broken_at)


def _prune_some(connection: sa.Connection, before: datetime, over: sa.ColumnElement[bool]) -> list[str]:
    recent = sa.exists().where(event.c.instance_id == instance.c.id, event.c.at >= before)
    unresolved = sa.exists().where(
        attempt.c.instance_id == instance.c.id, attempt.c.state.in_([it.value for it in OPEN_STATES])
    )
    old = sa.select(instance.c.id).where(
        over,
        instance.c.settled,
        instance.c.created_at < before,
        ~recent,
        ~unresolved,
    )
    gone = list(connection.execute(old.limit(INSTANCES_AT_ONCE)).scalars())
    if gone:
        keep_what_was_usable(connection, gone)
        # Labels and operations go with their instance.
        for table in (claim, attempt, event):
            connection.execute(sa.delete(table).where(table.c.instance_id.in_(gone)))
        connection.execute(sa.delete(instance).where(instance.c.id.in_(gone)))
        for instance_id in gone:
            record_change(connection, instance_id)
    return gone


SPANS_AT_ONCE = 1000


def keep_what_was_usable(connection: sa.Connection, instance_ids: Sequence[str]) -> None:
    """Note when instances were first usable, before their records go."""
    ready_at = sa.select(instance.c.ready_at).where(instance.c.id == ledger_subject.c.instance_id)
    connection.execute(
        sa.update(ledger_subject)
        .where(ledger_subject.c.key.in_(instance_ids), ledger_subject.c.usable_at.is_(None))
        .values(usable_at=ready_at.scalar_subquery())
    )


def prune_some_spans(connection: sa.Connection, before: datetime) -> int:
    """Forget some spans that had ended before then; return how many."""
    old = sa.select(meter.c.id).where(meter.c.ended_hi < before).limit(SPANS_AT_ONCE)
    return connection.execute(sa.delete(meter).where(meter.c.id.in_(old))).rowcount


def prune_days(connection: sa.Connection, before: datetime) -> None:
    """Forget the sums and bills of days before then, and whom they were about."""
    connection.execute(sa.delete(ledger_day).where(ledger_day.c.day < before.date()))
    connection.execute(sa.delete(bill).where(bill.c.day < before.date()))
    spent = sa.exists().where(meter.c.subject_id == ledger_subject.c.id)
    gone = connection.execute(
        sa.delete(ledger_subject).where(ledger_subject.c.last_at < before, ~spent)
    ).rowcount
    if not gone:
        return
    used = [
        sa.exists().where(table.c.centre_id == cost_centre.c.id)
        for table in (ledger_subject, meter, ledger_day)
    ]
    connection.execute(sa.delete(cost_centre).where(~sa.or_(*used)))
    known = sa.exists().where(cost_centre.c.id == ledger_label.c.centre_id)
    connection.execute(sa.delete(ledger_label).where(~known))
