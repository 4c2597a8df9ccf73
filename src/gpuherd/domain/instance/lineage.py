"""The lineage of an instance: the rentals that replace each other when spot machines are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

# The period over which replacements are limited.
REPLACEMENTS_COUNTED = timedelta(hours=24)


# Default limit for one lineage in that period.
MAX_REPLACEMENTS = 10


class OnReclaim(StrEnum):
    """What happens when the cloud takes a spot machine back."""

    NONE = "none"
    REPLACE = "replace"


class Why(StrEnum):
    """Why a replacement is made."""

    NOTICE = "notice"
    LOST = "lost"
    ASKED = "asked"


@dataclass(frozen=True)
class ReplacePolicy:
    """Whether and how an instance is replaced when the cloud takes its machine back."""

    on_reclaim: OnReclaim = OnReclaim.NONE
    # Per lineage and day.
    max_replacements: int = MAX_REPLACEMENTS
    # How long both run after the replacement is usable.
    handover_s: int = 0

    def as_doc(self) -> dict[str, Any]:
        """Return the fields as JSON, for storage."""
        return {**vars(self), "on_reclaim": self.on_reclaim.value}

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> ReplacePolicy:
        """Return the value that `as_doc` stored."""
        return cls(**{**doc, "on_reclaim": OnReclaim(doc["on_reclaim"])})


NO_REPLACEMENT = ReplacePolicy()


@dataclass(frozen=True)
class Heir:
    """The instance that will take over."""

    id: str
    link: int
    why: Why
    made_at: datetime
    # It is usable, and the original is deleted for it.
    has_taken_over: bool = False


@dataclass(frozen=True)
class Chain:
    """The place of an instance in its lineage, and what it knows of its replacements."""

    # The id of the first instance.
    lineage: str
    link: int = 1
    # The id of its original.
    replaces: str | None = None
    # The present replacement. A failed one is forgotten once it is proven gone.
    heir: Heir | None = None
    # The highest link made from here. No link is used twice.
    last_link: int = 0
    # When each counted replacement of the lineage was made.
    made_at: tuple[datetime, ...] = ()
    # Failed replacements in a row.
    failures: int = 0
    failed_at: datetime | None = None
    # No more replacements: there were too many, or a person declined.
    gave_up: bool = False
    # The user was notified that a replacement could not be made.
    refused: bool = False

    @property
    def next_link(self) -> int:
        return max(self.link, self.last_link) + 1

    def with_heir(self, heir: Heir) -> Chain:
        """Return the chain with its next replacement."""
        return replace(
            self, heir=heir, last_link=heir.link, made_at=self._counted(heir.made_at), refused=False
        )

    def of_heir(self, predecessor_id: str, heir: Heir) -> Chain:
        """Return the chain of the replacement itself. It continues the counts of its original."""
        return Chain(self.lineage, heir.link, predecessor_id, made_at=self._counted(heir.made_at))

    def without_heir(self, failed_at: datetime | None) -> Chain:
        """Return the chain without its replacement, and with the time of its failure if it failed."""
        if failed_at is None:
            return replace(self, heir=None)
        return replace(self, heir=None, failures=self.failures + 1, failed_at=failed_at)

    def _counted(self, now: datetime) -> tuple[datetime, ...]:
        return (*(it for it in self.made_at if abs(now - it) < REPLACEMENTS_COUNTED), now)

    def as_doc(self) -> dict[str, Any]:
        """Return the fields as JSON, for storage."""
        heir = self.heir
        return {
            **vars(self),
            "heir": None if heir is None else {**vars(heir), "made_at": heir.made_at.isoformat()},
            "made_at": [it.isoformat() for it in self.made_at],
            "failed_at": None if self.failed_at is None else self.failed_at.isoformat(),
        }

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Chain:
        """Return the value that `as_doc` stored."""
        heir, failed_at = doc["heir"], doc["failed_at"]
        return cls(
            **{
                **doc,
                "heir": None if heir is None else _heir_of(heir),
                "made_at": tuple(map(datetime.fromisoformat, doc["made_at"])),
                "failed_at": None if failed_at is None else datetime.fromisoformat(failed_at),
            }
        )


def _heir_of(doc: Mapping[str, Any]) -> Heir:
    return Heir(**{**doc, "why": Why(doc["why"]), "made_at": datetime.fromisoformat(doc["made_at"])})


class ReplacementOutcome(StrEnum):
    """The result of a replacement."""

    # Handed over while the original ran, or after it was lost.
    WARM = "warm"
    COLD = "cold"
    # The replacement was never usable, or was no longer needed.
    FAILED = "failed"
    CANCELLED = "cancelled"
    # A limit or a budget allows none, or there were too many.
    REFUSED = "refused"
    GAVE_UP = "gave_up"
