"""Exclusive leases on instances, in SQL: a token and an end in the row, checked by every save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import (
    attempt,
    instance,
    orphan,
    sighting,
)
from gpuherd.adapters.stores import job_store
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.instance_writes import take_over_cloud_id, update_instance
from gpuherd.adapters.stores.observation_store import read_lists_since, sighting_of
from gpuherd.adapters.stores.row_codec import attempt_of
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.cloud.orphan import OrphanOrder
from gpuherd.domain.errors import NotFound, StaleWrite, StoreUnavailable
from gpuherd.domain.instance.instance import Goal, Instance
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import Change, LeasedInstance

# Longer than the longest pass: a create call of 35 s, or a minute of health checks, with some margin.
LEASE_TERM = timedelta(seconds=120)


# Where other replicas wait to go on with what a dead one has left, leases are short, and renewed.
SHORT_LEASE_TERM = timedelta(seconds=10)


LEASE_RENEW_S = 2.5


# guard: one turn at a time
_LEASE = (
    sa.update(instance)
    .where(
        instance.c.id == sa.bindparam("its_id"),
        sa.or_(
            instance.c.lease_token.is_(None),
            instance.c.lease_until <= sa.bindparam("now", type_=instance.c.lease_until.type),
            # Never true where nothing was left.
            instance.c.lease_token == sa.bindparam("left", type_=sa.Text),
        ),
    )
    .values(
        lease_token=sa.bindparam("token"),
        lease_until=sa.bindparam("until"),
    )
    .returning(instance)
)


_OURS = (instance.c.id == sa.bindparam("its_id"), instance.c.lease_token == sa.bindparam("its_token"))
_HELD = sa.select(instance).where(*_OURS)
_RELEASE = sa.update(instance).where(*_OURS).values(lease_token=None, lease_until=None)


_RENEW = (
    sa.update(instance)
    .where(
        instance.c.id.in_(sa.bindparam("ids", expanding=True)),
        instance.c.lease_token.in_(sa.bindparam("tokens", expanding=True)),
    )
    .values(lease_until=sa.bindparam("until"))
)


_UNWANTED = sa.exists().where(
    orphan.c.cloud_id == sighting.c.cloud_id,
    orphan.c.gone_at.is_(None),
    orphan.c.ordered == OrphanOrder.DELETE.value,
)


class SqlInstanceLeases:
    """The port `InstanceLeases`."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: Ids,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
        lease: timedelta = LEASE_TERM,
    ):
        self._database = database
        self._clock = clock
        self._ids = ids
        self._announce = announce
        self._lease = lease
        # The leases that are held here, by their tokens: of which instance, and since when.
        self._held: dict[str, tuple[str, float]] = {}
        # Turns of ours that have ended while the database could not be told, by instance.
        self._unreleased: dict[str, str] = {}

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        now, token, left = self._clock.now(), self._ids.new(), self._unreleased.get(instance_id)
        until = now + self._lease
        # Should a crash of the server take the lease back, no save is taken without it.
        leased = await self._database.write(
            lambda c: _acquire(c, instance_id, job_id, token, now, until, left), durable=False
        )
        if leased is not None:
            self._unreleased.pop(instance_id, None)
            self._held[token] = (instance_id, self._clock.monotonic())
        return leased

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        now = self._clock.now()
        audited = change.audit_record is not None
        try:
            version = await self._database.write(
                lambda c: update_instance(c, change, leased.token, now), audited=audited
            )
            self._announce(list(change.instance_ids))
        except sa.exc.IntegrityError:
            # The cloud has used the id of a machine again that one of our instances had. So rare that nobody
            # looks for it before each save.
            former, version = await self._database.write(
                lambda c: _save_over_former(c, change, leased.token, now),
                audited=audited,
            )
            self._announce([change.instance.id, former])
        if change.releases_lease:
            self._held.pop(leased.token, None)
        return replace(
            leased,
            instance=replace(change.instance, version=version),
            attempts=_merged(leased.attempts, change.attempt),
        )

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        def work(connection: sa.Connection) -> LeasedInstance:
            ours = {"its_id": leased.instance.id, "its_token": leased.token}
            row = connection.execute(_HELD, ours).first()
            if row is None:
                raise StaleWrite(f"the turn of instance {leased.instance.id} was lost")
            return _look(connection, row, leased.token)

        return await self._database.read(work)

    async def release(self, leased: LeasedInstance) -> None:
        if self._held.pop(leased.token, None) is None:
            return
        ours = {"its_id": leased.instance.id, "its_token": leased.token}
        try:
            await self._database.write(lambda c: c.execute(_RELEASE, ours).rowcount)
        except StoreUnavailable:
            # Nobody should have to wait for the end of the lease when the disk has room again.
            self._unreleased[leased.instance.id] = leased.token
            raise

    async def renew(self) -> int:
        """Keep the leases of passes that take long; return how many there are.

        One that was lost meanwhile stays lost: its token is not in the row any more.
        """
        long_ago = self._clock.monotonic() - LEASE_RENEW_S
        old = {token: its_id for token, (its_id, began_s) in self._held.items() if began_s <= long_ago}
        if not old:
            return 0
        renewed = {"ids": list(old.values()), "tokens": list(old), "until": self._clock.now() + self._lease}
        return await self._database.write(lambda c: c.execute(_RENEW, renewed).rowcount)

    def release_all_leases(self) -> None:
        """Free every instance: only for a start at which no other process can be using the database."""
        free = sa.update(instance).where(instance.c.lease_token.is_not(None))
        self._database.write_now(
            lambda c: c.execute(free.values(lease_token=None, lease_until=None)).rowcount
        )


def _acquire(
    connection: sa.Connection,
    instance_id: str,
    job_id: str | None,
    token: str,
    now: datetime,
    until: datetime,
    left: str | None,
) -> LeasedInstance | None:
    lease = {"its_id": instance_id, "now": now, "left": left, "token": token, "until": until}
    row = connection.execute(_LEASE, lease).first()
    if row is None:
        if connection.execute(sa.select(instance.c.id).where(instance.c.id == instance_id)).first() is None:
            raise NotFound(f"there is no instance {instance_id!r}", code="INSTANCE_NOT_FOUND")
        return None
    if job_id is not None:
        # A wake-up from before this read is answered by this read.
        job_store.answer_wake(connection, job_id)
    return _look(connection, row, token)


def _save_over_former(
    connection: sa.Connection, change: Change, token: str, now: datetime
) -> tuple[str, int]:
    """Save a change that binds a machine whose id an earlier one had, and name the instance of that one."""
    former = take_over_cloud_id(connection, change.instance)
    return former or change.instance.id, update_instance(connection, change, token, now)


def _look(connection: sa.Connection, row: sa.Row[Any], token: str) -> LeasedInstance:
    """Return all that a decision about this instance needs, as it is now."""
    attempts = _attempts(connection, row.id)
    it = instance_of(row)
    # Lists before sightings. On PostgreSQL each statement sees its own moment, and a list is committed with
    # what it showed: read the other way round, one that showed the machine would count as proof against it.
    # guard: lists are read before sightings
    lists = _lists_since(connection, _evidence_needed_since(it, attempts))
    observations = _observations(connection, row, attempts)
    return LeasedInstance(instance=it, attempts=attempts, observations=observations, lists=lists, token=token)


def _observations(
    connection: sa.Connection, row: sa.Row[Any], attempts: tuple[Attempt, ...]
) -> tuple[ObservedMachine, ...]:
    """Return what the lists showed of its machine, or of those that may be its machine."""
    if row.cloud_id is not None:
        its_machine = sighting.c.cloud_id == row.cloud_id
    else:
        # A machine of a closed call carries a tag of this instance. A machine that a person wants deleted is
        # not counted.
        its_machine = sa.and_(sighting.c.tagged_instance_id == row.id, ~_UNWANTED)
    # Each condition has an index of its own.
    open_tags = [sighting.c.tag == it.tag for it in attempts if it.is_open]
    query = sa.select(sighting).where(sa.or_(its_machine, *open_tags))
    return tuple(map(sighting_of, connection.execute(query)))


def _attempts(connection: sa.Connection, instance_id: str) -> tuple[Attempt, ...]:
    query = sa.select(attempt).where(attempt.c.instance_id == instance_id).order_by(attempt.c.n)
    return tuple(map(attempt_of, connection.execute(query)))


def _evidence_needed_since(it: Instance, attempts: tuple[Attempt, ...]) -> datetime | None:
    """Return since when lists matter: only an open create call or a removal makes them evidence."""
    waiting = next((known for known in attempts if known.is_open), None)
    if waiting is not None:
        return waiting.sent_at
    leaving = it.releasing or it.goal is Goal.DELETED
    return it.asked_at if leaving else None


def _lists_since(connection: sa.Connection, since: datetime | None) -> tuple[ListRecord, ...]:
    return () if since is None else read_lists_since(connection, since)


def _merged(attempts: tuple[Attempt, ...], changed: Attempt | None) -> tuple[Attempt, ...]:
    if changed is None:
        return attempts
    others = (it for it in attempts if it.n != changed.n)
    return tuple(sorted((*others, changed), key=lambda it: it.n))
