"""The ledger's lines and the records about a machine, as rows and back."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import Row

from gpuherd.adapters.sql.engine.columns import Doc, dumps, from_micros, to_micros
from gpuherd.adapters.sql.instances.observations import machine_doc, machine_of, sighting_of
from gpuherd.adapters.sql.mapping.instances import attempt_of, instance_of
from gpuherd.adapters.sql.schema.tables import attempt, instance, orphan, sighting
from gpuherd.domain.orphans.orphan import (
    MachineRecords,
    Orphan,
    OrphanEnding,
    OrphanFinding,
    OrphanOrder,
    OrphanVerdict,
)
from gpuherd.ports.orphans import LedgerEntry, OrphanCandidate

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
