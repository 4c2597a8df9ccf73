"""The audit log: who did what, each entry sealed with the one before it: none can be changed unseen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

# What comes before the first entry.
NO_HASH = "0" * 64


@dataclass(frozen=True)
class Deed:
    """Something that somebody does, before it has a place in the log."""

    at: datetime
    # The id of a key, or one of our own names.
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
    deed: Deed
    hash: str


def sealed(deed: Deed, last_n: int, last_hash: str) -> AuditEntry:
    """Return the entry that follows the one with this number and hash."""
    n = last_n + 1
    return AuditEntry(n, deed, seal(n, deed, last_hash))


def seal(n: int, deed: Deed, last_hash: str) -> str:
    """Return the hash of an entry: over the hash before it and everything that it says."""
    said = [
        last_hash,
        n,
        deed.at.astimezone(UTC).isoformat(timespec="microseconds"),
        deed.actor,
        deed.action,
        deed.target,
        deed.before,
        deed.after,
        deed.request_id,
    ]
    # JSON keeps the fields apart: no two entries can be written as the same text.
    return hashlib.sha256(_encode(said).encode()).hexdigest()


_encode = json.JSONEncoder(separators=(",", ":")).encode


def first_broken(entries: Iterable[AuditEntry], last_n: int = 0, last_hash: str = NO_HASH) -> int | None:
    """Return the number at which the chain breaks, None if it holds; oldest first, after the given entry."""
    for entry in entries:
        if entry.n != last_n + 1:
            # Those between are missing, or this one was put where it does not belong.
            return last_n + 1
        if entry.hash != seal(entry.n, entry.deed, last_hash):
            return entry.n
        last_n, last_hash = entry.n, entry.hash
    return None
