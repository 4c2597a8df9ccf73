"""Terms: until when an instance may cost money, as its user has agreed, and what becomes of it then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

# From, to; in seconds.
LEASE_S = (10, 90 * 86_400)
SILENCE_S = (10, 90 * 86_400)
STOPPED_S = (10, 90 * 86_400)


class EndAction(StrEnum):
    """What becomes of an instance whose time is over."""

    STOP = "stop"
    DELETE = "delete"


@dataclass(frozen=True)
class Lease:
    """A time that was agreed: so long from the rental on, or until a moment; exactly one of the two."""

    seconds: int | None = None
    until: datetime | None = None
    then: EndAction = EndAction.STOP


@dataclass(frozen=True)
class AutoStop:
    """An end for what nobody uses: its user has been silent for so long."""

    silence_s: int
    then: EndAction = EndAction.STOP


@dataclass(frozen=True)
class Terms:
    """All that was agreed about the end of an instance."""

    lease: Lease | None = None
    auto_stop: AutoStop | None = None
    # A stopped one is deleted after so long: its disk costs money.
    delete_stopped_s: int | None = None

    def as_doc(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for storage."""
        doc = asdict(self)
        if self.lease is not None and self.lease.until is not None:
            doc["lease"]["until"] = self.lease.until.isoformat()
        return doc

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Terms:
        """Return what `as_doc` wrote down."""
        lease, auto_stop = doc["lease"], doc["auto_stop"]
        return cls(
            lease=None if lease is None else _lease_of(lease),
            auto_stop=None
            if auto_stop is None
            else AutoStop(auto_stop["silence_s"], EndAction(auto_stop["then"])),
            delete_stopped_s=doc["delete_stopped_s"],
        )


NO_TERMS = Terms()


def _lease_of(doc: Mapping[str, Any]) -> Lease:
    until = doc["until"]
    return Lease(
        doc["seconds"], None if until is None else datetime.fromisoformat(until), EndAction(doc["then"])
    )
