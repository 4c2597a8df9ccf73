"""The lineage of an instance: the rentals that follow each other when spot machines are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

# So long replacements count against the number that may be made.
REPLACEMENTS_COUNTED = timedelta(hours=24)


# Of one lineage in that time, where nothing else was agreed.
MAX_REPLACEMENTS = 10


# What may be agreed.
REPLACEMENTS, HANDOVER_S = (1, 1000), (0, 3600)


class OnReclaim(StrEnum):
    """What happens when the cloud takes a spot machine back."""

    NONE = "none"
    REPLACE = "replace"


class Why(StrEnum):
    """What an heir is made for."""

    NOTICE = "notice"
    LOST = "lost"
    ASKED = "asked"


@dataclass(frozen=True)
class ReplacePolicy:
    """Whether an instance is replaced when the cloud takes its machine back, how often, and how."""

    on_reclaim: OnReclaim = OnReclaim.NONE
    # Of one lineage in a day.
    max_replacements: int = MAX_REPLACEMENTS
    # How long both stay up once the new one can be used.
    handover_s: int = 0

    def as_doc(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for storage."""
        return {**vars(self), "on_reclaim": self.on_reclaim.value}

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> ReplacePolicy:
        """Return what `as_doc` wrote down."""
        return cls(**{**doc, "on_reclaim": OnReclaim(doc["on_reclaim"])})


NO_REPLACEMENT = ReplacePolicy()


@dataclass(frozen=True)
class Heir:
    """The instance that is to take over."""

    id: str
    link: int
    why: Why
    made_at: datetime
    # It can be used, and its predecessor goes because of that.
    has_taken_over: bool = False


@dataclass(frozen=True)
class Chain:
    """The place of an instance in its lineage, and what it knows of its heirs."""

    # The id of the first of them.
    lineage: str
    link: int = 1
    # Its predecessor.
    replaces: str | None = None
    # The present one; one that came to nothing is forgotten once it is proven to be gone.
    heir: Heir | None = None
    # The highest that was made from here: no link is given out twice.
    last_link: int = 0
    # When each replacement of the lineage was made, as far as they count.
    made_at: tuple[datetime, ...] = ()
    # Heirs that failed, in a row.
    failures: int = 0
    failed_at: datetime | None = None
    # Nothing more is made from here: there were too many, or a person has declined.
    gave_up: bool = False
    # It was told that an heir could not be made.
    refused: bool = False

    @property
    def next_link(self) -> int:
        return max(self.link, self.last_link) + 1

    def with_heir(self, heir: Heir) -> Chain:
        """Return it with its next heir."""
        return replace(
            self, heir=heir, last_link=heir.link, made_at=self._counted(heir.made_at), refused=False
        )

    def of_heir(self, predecessor_id: str, heir: Heir) -> Chain:
        """Return the place of the heir itself: it goes on counting where its predecessor was."""
        return Chain(self.lineage, heir.link, predecessor_id, made_at=self._counted(heir.made_at))

    def without_heir(self, failed_at: datetime | None) -> Chain:
        """Return it without the heir that came to nothing, and with when it failed, if it did."""
        if failed_at is None:
            return replace(self, heir=None)
        return replace(self, heir=None, failures=self.failures + 1, failed_at=failed_at)

    def _counted(self, now: datetime) -> tuple[datetime, ...]:
        return (*(it for it in self.made_at if abs(now - it) < REPLACEMENTS_COUNTED), now)

    def as_doc(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for storage."""
        heir = self.heir
        return {
            **vars(self),
            "heir": None if heir is None else {**vars(heir), "made_at": heir.made_at.isoformat()},
            "made_at": [it.isoformat() for it in self.made_at],
            "failed_at": None if self.failed_at is None else self.failed_at.isoformat(),
        }

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Chain:
        """Return what `as_doc` wrote down."""
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
    """What became of an heir, or of the wish for one."""

    # Handed over while the old machine ran, or after it was lost.
    WARM = "warm"
    COLD = "cold"
    # The heir was never of use; or nobody needed it in the end.
    FAILED = "failed"
    CANCELLED = "cancelled"
    # A limit or a budget allows none; there were too many.
    REFUSED = "refused"
    GAVE_UP = "gave_up"
