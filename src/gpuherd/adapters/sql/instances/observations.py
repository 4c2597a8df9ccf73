"""Machines as lists showed them, to rows and back."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Row

from gpuherd.adapters.sql.doc_parts import Doc, at, dumps, moment, ports_doc, ports_of
from gpuherd.domain.machine import Connection, Machine, Phase
from gpuherd.domain.sighting import ListRecord, Sighting, Witness


def machine_doc(it: Machine) -> str:
    """Return a machine as text; equal machines give equal text."""
    doc = {
        **vars(it),
        "phase": it.phase.value,
        "spot_reclaim_at": at(it.spot_reclaim_at),
        "created_at": at(it.created_at),
        "ports": ports_doc(it.ports),
        "connection": vars(it.connection),
    }
    return dumps(doc)


def machine_of(text: str) -> Machine:
    doc = json.loads(text)
    return Machine(
        **{
            **doc,
            "phase": Phase(doc["phase"]),
            "spot_reclaim_at": moment(doc["spot_reclaim_at"]),
            "created_at": moment(doc["created_at"]),
            "ports": ports_of(doc["ports"]),
            "connection": Connection(**doc["connection"]),
        }
    )


def sighting_row(it: Sighting, tag: str | None) -> Doc:
    return {
        "cloud_id": it.machine.cloud_id,
        "tag": tag,
        "first_seen_at": it.first_seen_at,
        "changed_at": it.changed_at,
        "missing_since": it.missing_since,
        "missing_lists": it.missing_lists,
        "doc": machine_doc(it.machine),
    }


def sighting_of(row: Row[Any]) -> Sighting:
    return Sighting(
        machine=machine_of(row.doc),
        first_seen_at=row.first_seen_at,
        changed_at=row.changed_at,
        missing_since=row.missing_since,
        missing_lists=row.missing_lists,
    )


def list_record_of(row: Row[Any]) -> ListRecord:
    return ListRecord(row.started_at, row.finished_at, row.complete, Witness(row.witness), row.machines)
