"""The ledger's lines and the records about a machine, as rows and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import Row

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import (
    attempt,
    instance,
    orphan,
    sighting,
)
from gpuherd.adapters.sql.sql_types import (
    Doc,
    dumps,
    from_micros,
    to_micros,
)
from gpuherd.adapters.stores.audit_store import append_audit_record, lock_audit_log
from gpuherd.adapters.stores.event_store import append_account_events
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.instance_writes import add_instance, let_go, update_instance
from gpuherd.adapters.stores.leader_fence import FencedDatabase
from gpuherd.adapters.stores.observation_store import machine_doc, machine_of, sighting_of
from gpuherd.adapters.stores.row_codec import attempt_of
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.orphan import (
    MachineRecords,
    Orphan,
    OrphanEnding,
    OrphanFinding,
    OrphanOrder,
    OrphanVerdict,
    machine_claimed_error,
)
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    TERMINAL_STATUSES,
    Instance,
    Status,
)
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.domain.instance.instance_state import has_given_up_machine
from gpuherd.domain.instance.rent_attempt import OPEN_STATES, machine_tag, owner_tag
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import Change
from gpuherd.ports.observation_port import LedgerEntry, LedgerWrite, OrphanCandidate

BOUND = instance.alias("bound")
NAMED = instance.alias("named")
BOUND_ATTEMPT = attempt.alias("bound_attempt")


# Everything about one machine in one statement: what is read together was true together.
_PARTS = {"s": sighting, "o": orphan, "b": BOUND, "a": attempt, "n": NAMED, "c": BOUND_ATTEMPT}


def part_columns(letters: str = "".join(_PARTS)) -> list[sa.Label[Any]]:
    """Return all columns of these parts, each with the letter of its part before its name."""
    return [column.label(f"{letter}_{column.name}") for letter in letters for column in _PARTS[letter].c]


def candidate_of(row: Row[Any]) -> OrphanCandidate:
    """Return what one row of all parts says."""
    bound, call, named, bound_call = (_part(row, letter) for letter in "banc")
    entry = ledger_entry_of(row)
    return OrphanCandidate(
        sighting=entry.sighting,
        records=MachineRecords(
            bound=None if bound is None else instance_of(bound),
            bound_attempt=None if bound_call is None else attempt_of(bound_call),
            attempt=None if call is None else attempt_of(call),
            named=None if named is None else instance_of(named),
        ),
        orphan=entry.orphan,
    )


def ledger_entry_of(row: Row[Any]) -> LedgerEntry:
    """Return what the ledger's and the lists' part of a row say."""
    seen, entry = _part(row, "s"), _part(row, "o")
    return LedgerEntry(
        orphan=None if entry is None else _orphan_of(entry, seen),
        sighting=None if seen is None else sighting_of(seen),
    )


def _part(row: Row[Any], letter: str) -> Row[Any] | None:
    """Return the columns of one part, or None where the join found nothing."""
    table = _PARTS[letter]
    values = {column.name: row._mapping[f"{letter}_{column.name}"] for column in table.c}
    key = next(iter(table.primary_key)).name
    # The readers only ask for attributes, and a namespace has those as well as a row.
    return None if values[key] is None else cast(Row[Any], SimpleNamespace(**values))


def _orphan_of(row: Row[Any], seen: Row[Any] | None) -> Orphan:
    """Return a line, with its machine as the lists show it now if they do."""
    doc = json.loads(row.doc)
    usd = doc["running_usd"]
    return Orphan(
        machine=machine_of(doc["machine"] if seen is None else seen.doc),
        finding=OrphanFinding(OrphanVerdict(row.verdict), doc["reason"], doc["instance_id"]),
        first_seen_at=row.first_seen_at,
        judged_at=row.judged_at,
        confirmed_at=row.confirmed_at,
        gpus_usd=None if usd is None else Decimal(usd),
        # Lines of an older version do not have it; the next list adds it.
        disk_usd=Decimal(doc.get("disk_usd", 0)),
        changed_at=_moment(doc["changed_at"]) if seen is None else seen.changed_at,
        order=None if row.ordered is None else OrphanOrder(row.ordered),
        ordered_at=row.ordered_at,
        ordered_by=row.ordered_by,
        asked_at=row.asked_at,
        tries=doc["tries"],
        error=doc["error"],
        gone_at=row.gone_at,
        ending=None if doc["ending"] is None else OrphanEnding(doc["ending"]),
        adopted_as=doc["adopted_as"],
        version=row.version,
    )


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def orphan_row(it: Orphan) -> Doc:
    """Return the columns of a line, without its version."""
    doc = {
        "machine": machine_doc(it.machine),
        "reason": it.finding.reason,
        "instance_id": it.finding.instance_id,
        "running_usd": None if it.gpus_usd is None else str(it.gpus_usd),
        "disk_usd": str(it.disk_usd),
        "changed_at": None if it.changed_at is None else to_micros(it.changed_at),
        "tries": it.tries,
        "error": it.error,
        "ending": it.ending,
        "adopted_as": it.adopted_as,
    }
    return {
        "cloud_id": it.cloud_id,
        "verdict": it.verdict.value,
        "first_seen_at": it.first_seen_at,
        "judged_at": it.judged_at,
        "confirmed_at": it.confirmed_at,
        "ordered": None if it.order is None else it.order.value,
        "ordered_at": it.ordered_at,
        "ordered_by": it.ordered_by,
        "asked_at": it.asked_at,
        "gone_at": it.gone_at,
        "doc": dumps(doc),
    }


# Of these the domain decides whether they still count on their machine; all others do.
_ENDED_STATUSES = [status.value for status in TERMINAL_STATUSES]


_IS_OPEN = orphan.c.gone_at.is_(None)


class SqlOrphans:
    """The port `Orphans`."""

    def __init__(
        self,
        database: Database | FencedDatabase,
        clock: Clock,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
    ):
        self._database = database
        self._clock = clock
        self._announce = announce

    async def candidates(self) -> tuple[OrphanCandidate, ...]:
        def work(connection: sa.Connection) -> tuple[OrphanCandidate, ...]:
            return tuple(
                candidate_of(row) for query in (_UNRECORDED, _UNDECIDED) for row in connection.execute(query)
            )

        return await self._database.read(work)

    async def entry(self, cloud_id: str) -> LedgerEntry:
        def work(connection: sa.Connection) -> LedgerEntry:
            row = connection.execute(_LISTED.where(sighting.c.cloud_id == cloud_id)).first()
            row = row or connection.execute(_LINES.where(orphan.c.cloud_id == cloud_id)).first()
            return LedgerEntry(None, None) if row is None else ledger_entry_of(row)

        return await self._database.read(work)

    async def records(self, machine: Machine) -> MachineRecords:
        return await self._database.read(lambda c: _records(c, machine))

    async def open(self) -> tuple[Orphan, ...]:
        query = _LINES.where(_IS_OPEN).order_by(orphan.c.first_seen_at, orphan.c.cloud_id)

        def work(connection: sa.Connection) -> tuple[Orphan, ...]:
            lines = (ledger_entry_of(row).orphan for row in connection.execute(query))
            return tuple(it for it in lines if it is not None)

        return await self._database.read(work)

    async def save(self, entries: Sequence[LedgerWrite]) -> None:
        now = self._clock.now()

        def work(connection: sa.Connection) -> None:
            for it in entries:
                if it.audit_record is not None:
                    append_audit_record(connection, it.audit_record)
            _write_all(connection, [it.orphan for it in entries])
            for it in entries:
                if it.change is not None:
                    update_instance(connection, it.change, None, now)
            account = [told for it in entries for told in it.account]
            append_account_events(connection, account, now)

        try:
            await self._database.write(
                work,
                audited=any(it.audit_record is not None for it in entries),
            )
        except sa.exc.IntegrityError as error:
            # Another process has opened one of the lines, or numbered an event, a moment before.
            raise StaleWrite("the ledger has changed since it was read") from error
        changed = [it.change.instance.id for it in entries if it.change is not None]
        if any(it.account for it in entries):
            changed.append(ACCOUNT)
        self._announce(changed)

    async def begin_order(self, it: Orphan) -> Orphan | None:
        counted_on = sa.exists().where(
            instance.c.cloud_id == it.cloud_id, instance.c.status.not_in(_ENDED_STATUSES)
        )
        claim = (
            sa.update(orphan)
            .where(orphan.c.cloud_id == it.cloud_id, orphan.c.version == it.version, _IS_OPEN, ~counted_on)
            .values(**orphan_row(it), version=it.version + 1)
        )
        asked = await self._database.write(lambda c: c.execute(claim).rowcount == 1)
        return replace(it, version=it.version + 1) if asked else None

    async def adopt(self, it: Orphan, change: Change, *, is_new: bool) -> Instance:
        now = self._clock.now()
        try:
            adopted = await self._database.write(
                lambda c: _adopt(c, it, change, is_new, now),
                audited=change.audit_record is not None,
            )
        except sa.exc.IntegrityError as error:
            # Somebody else's instance got the machine, or the id, between our look and our write.
            raise StaleWrite(f"machine {it.cloud_id} has just changed hands") from error
        self._announce([adopted.id])
        return adopted

    async def ordered_since(self, moment: datetime, by: str) -> int:
        query = sa.select(sa.func.count()).where(
            orphan.c.ordered == OrphanOrder.DELETE.value,
            orphan.c.ordered_by == by,
            orphan.c.ordered_at > moment,
        )
        return await self._database.read(lambda c: int(c.execute(query).scalar_one()))

    async def live_instances(self) -> int:
        query = sa.select(sa.func.count()).where(instance.c.status != Status.DELETED.value)
        return await self._database.read(lambda c: int(c.execute(query).scalar_one()))

    async def forget(self, before: datetime) -> int:
        old = sa.delete(orphan).where(orphan.c.gone_at < before)
        return await self._database.write(lambda c: c.execute(old).rowcount)


_IN_LISTS = sighting.outerjoin(orphan, orphan.c.cloud_id == sighting.c.cloud_id)
_IN_LEDGER = orphan.outerjoin(sighting, sighting.c.cloud_id == orphan.c.cloud_id)


def _with_records(parts: sa.Join, cloud_id: sa.ColumnElement[str]) -> sa.Select[Any]:
    """Select each machine together with what we hold about it."""
    joined = (
        parts.outerjoin(BOUND, BOUND.c.cloud_id == cloud_id)
        .outerjoin(attempt, attempt.c.tag == sighting.c.tag)
        .outerjoin(NAMED, NAMED.c.id == sighting.c.tagged_instance_id)
        .outerjoin(
            BOUND_ATTEMPT,
            sa.and_(BOUND_ATTEMPT.c.instance_id == BOUND.c.id, BOUND_ATTEMPT.c.cloud_id == BOUND.c.cloud_id),
        )
    )
    return sa.select(*part_columns()).select_from(joined)


_LISTED = sa.select(*part_columns("so")).select_from(_IN_LISTS)
_LINES = sa.select(*part_columns("so")).select_from(_IN_LEDGER)


# Listed machines that have no open line, that no instance counts on, and that no create call waits for.
_UNRECORDED = _with_records(_IN_LISTS, sighting.c.cloud_id).where(
    sighting.c.missing_since.is_(None),
    sa.or_(orphan.c.cloud_id.is_(None), orphan.c.gone_at.is_not(None)),
    sa.or_(BOUND.c.id.is_(None), BOUND.c.status.in_(_ENDED_STATUSES)),
    sa.or_(attempt.c.tag.is_(None), attempt.c.state.not_in([it.value for it in OPEN_STATES])),
)


# Open lines about which something may have to be decided.
_UNDECIDED = _with_records(_IN_LEDGER, orphan.c.cloud_id).where(
    _IS_OPEN,
    sa.or_(
        orphan.c.verdict != OrphanVerdict.FOREIGN.value,
        orphan.c.confirmed_at.is_(None),
        orphan.c.ordered.is_not(None),
        sighting.c.cloud_id.is_(None),
        sighting.c.missing_since.is_not(None),
        BOUND.c.id.is_not(None),
    ),
)


def _records(connection: sa.Connection, machine: Machine) -> MachineRecords:
    owner = owner_tag(machine)
    # The create call first: one that ends between two reads has its machine bound by the second.
    called = connection.execute(sa.select(attempt).where(attempt.c.tag == machine_tag(machine))).first()
    bound = connection.execute(sa.select(instance).where(instance.c.cloud_id == machine.cloud_id)).first()
    made = sa.select(attempt).where(
        attempt.c.instance_id == (None if bound is None else bound.id),
        attempt.c.cloud_id == machine.cloud_id,
    )
    bound_call = connection.execute(made).first()
    named_id = None if owner is None else ID_PREFIX + owner.instance_key
    named = connection.execute(sa.select(instance).where(instance.c.id == named_id)).first()
    return MachineRecords(
        bound=None if bound is None else instance_of(bound),
        bound_attempt=None if bound_call is None else attempt_of(bound_call),
        attempt=None if called is None else attempt_of(called),
        named=None if named is None else instance_of(named),
    )


def _write_all(connection: sa.Connection, lines: Sequence[Orphan]) -> None:
    """Write lines over the versions they were made from; version 0 is a line that does not exist yet."""
    new = [{**orphan_row(it), "version": 1} for it in lines if it.version == 0]
    if new:
        connection.execute(sa.insert(orphan), new)
    for it in lines:
        if it.version > 0:
            _write(connection, it)


def _write(connection: sa.Connection, it: Orphan) -> None:
    known = sa.update(orphan).where(orphan.c.cloud_id == it.cloud_id, orphan.c.version == it.version)
    if connection.execute(known.values(**orphan_row(it), version=it.version + 1)).rowcount != 1:
        raise StaleWrite(f"the ledger's line about machine {it.cloud_id} has changed since it was read")


def _adopt(connection: sa.Connection, it: Orphan, change: Change, is_new: bool, now: datetime) -> Instance:
    lock_audit_log(connection, change.audit_record)
    row = connection.execute(sa.select(instance).where(instance.c.cloud_id == it.cloud_id)).first()
    holder = None if row is None else instance_of(row)
    if holder is not None and not has_given_up_machine(holder):
        raise machine_claimed_error(it.cloud_id, holder.id)
    if holder is not None and holder.id != change.instance.id:
        # A machine has one instance at most, and the one that gave it up keeps only its story.
        let_go(connection, holder)
    _write_all(connection, [it])
    if is_new:
        add_instance(connection, change, now)
        return change.instance
    return replace(change.instance, version=update_instance(connection, change, None, now))
