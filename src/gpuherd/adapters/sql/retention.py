"""Forgets what is too old, in SQL, a little at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from gpuherd.adapters.sql.access.audit import prune_some_entries
from gpuherd.adapters.sql.costs.retention import keep_what_was_usable, prune_days, prune_some_spans
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.postgres.notify import record_change
from gpuherd.adapters.sql.schema.plan_tables import held_plan
from gpuherd.adapters.sql.schema.tables import (
    attempt,
    audit,
    claim,
    delivery,
    ended_session,
    event,
    instance,
    orphan,
    sighting,
)
from gpuherd.domain.instance.attempt import OPEN_STATES
from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.domain.instance.instance import Status
from gpuherd.ports.access import AuditPruning

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
        # guard: and so does one of an older version
        _keep_owners(connection, gone)
        keep_what_was_usable(connection, gone)
        # Labels and operations go with their instance.
        for table in (claim, attempt, event):
            connection.execute(sa.delete(table).where(table.c.instance_id.in_(gone)))
        connection.execute(sa.delete(instance).where(instance.c.id.in_(gone)))
        for instance_id in gone:
            record_change(connection, instance_id)
    return gone


def _keep_owners(connection: sa.Connection, instance_ids: Sequence[str]) -> None:
    """Let the webhooks of an older version know whose secret signs them, which only the instance tells."""
    owner = sa.select(instance.c.owner).where(instance.c.id == delivery.c.instance_id).scalar_subquery()
    connection.execute(
        sa.update(delivery)
        .where(
            delivery.c.instance_id.in_(instance_ids),
            delivery.c.endpoint_id.is_(None),
            delivery.c.owner.is_(None),
        )
        .values(owner=owner)
    )
