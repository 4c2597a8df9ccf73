"""What replicas agree on in their common database: who does what only one may do, and who is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


class Duties(Protocol):
    """Duties that one replica at a time may hold, each for a term that has to be renewed."""

    async def hold(self, name: str, holder: str, term: timedelta) -> int | None:
        """Take a duty that is free, or keep it; return its fence, None while another replica holds it.

        The fence grows whenever the duty changes hands, and not when it is kept.
        """
        ...

    async def seize(self, name: str, holder: str, term: timedelta) -> int:
        """Take a duty from whoever holds it, and return its fence."""
        ...

    async def lay_down(self, name: str, holder: str) -> None:
        """Free a duty at once. Quiet when another replica holds it."""
        ...


@dataclass(frozen=True)
class Replica:
    """One process on the common database."""

    id: str
    # all, api or worker
    role: str
    version: str
    # The machine and process, for people.
    place: str
    started_at: datetime
    seen_at: datetime


class Replicas(Protocol):
    """Who is there."""

    async def sign(self, replica: Replica, forget_before: datetime) -> Sequence[Replica]:
        """Note that this one is there, forget who was not seen for long, and return all, oldest first."""
        ...

    async def sign_off(self, replica_id: str) -> None:
        """Note that this one has gone."""
        ...
