"""The audit log: who did what.

Each entry holds the hash of the entry before it, so a changed entry is detected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

# The hash before the first entry.
NO_HASH = "0" * 64


# The log records its own pruning under this action: the number and the hash of the last removed entry.
PRUNE_ACTION = "audit.prune"


@dataclass(frozen=True)
class AuditRecord:
    """One action of a caller, before it has a number in the log."""

    at: datetime
    # The id of a key, or an internal name.
    actor: str
    action: str
    target: str
    before: str = ""
    after: str = ""
    request_id: str = ""


@dataclass(frozen=True)
class AuditEntry:
    """One line of the log."""

    n: int
    audit_record: AuditRecord
    hash: str


@dataclass(frozen=True)
class AuditAnchor:
    """The last entry that was pruned. Verification starts here."""

    n: int
    hash: str

    def is_told_by(self, entry: AuditEntry) -> bool:
        """Return True if this entry records that the log was pruned up to here."""
        said = entry.audit_record
        return (said.action, said.target, said.after) == (PRUNE_ACTION, str(self.n), self.hash)


def chained(audit_record: AuditRecord, last_n: int, last_hash: str) -> AuditEntry:
    """Return the entry that follows the entry with this number and hash."""
    n = last_n + 1
    return AuditEntry(n, audit_record, entry_hash(n, audit_record, last_hash))


def entry_hash(n: int, audit_record: AuditRecord, last_hash: str) -> str:
    """Return the hash of an entry: over the previous hash and all fields."""
    it, moment = audit_record, audit_record.at.astimezone(UTC).isoformat(timespec="microseconds")
    # JSON separates the fields, so two different entries never have the same text. Every create writes an
    # entry, and encoding a list takes several times longer than encoding its texts.
    said = (
        f"[{_quote(last_hash)},{n},{_quote(moment)},{_quote(it.actor)},{_quote(it.action)},"
        f"{_quote(it.target)},{_quote(it.before)},{_quote(it.after)},{_quote(it.request_id)}]"
    )
    return hashlib.sha256(said.encode()).hexdigest()


_quote = json.encoder.encode_basestring_ascii


def first_broken_entry(
    entries: Iterable[AuditEntry], last_n: int = 0, last_hash: str = NO_HASH
) -> int | None:
    """Return the number at which the chain breaks; None if it holds.

    Entries come oldest first, after the given one.
    """
    for entry in entries:
        if entry.n != last_n + 1:
            # Entries are missing in between, or this one stands in the wrong place.
            return last_n + 1
        if entry.hash != entry_hash(entry.n, entry.audit_record, last_hash):
            return entry.n
        last_n, last_hash = entry.n, entry.hash
    return None
