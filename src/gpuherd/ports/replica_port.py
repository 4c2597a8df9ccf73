"""Replicas: leadership, registry, flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from gpuherd.domain.audit import AuditRecord


class LeaderLeases(Protocol):
    """Leases that one replica at a time may hold, each for a term that must be renewed."""

    async def acquire_or_renew(self, name: str, holder: str, term: timedelta) -> int | None:
        """Acquire a lease that is free, or renew it; return its fencing token, None while another replica
        holds it.

        The fencing token grows whenever the lease changes hands, and not when it is renewed.
        """
        ...

    async def force_acquire(self, name: str, holder: str, term: timedelta) -> int:
        """Take a lease from its holder, and return its fencing token."""
        ...

    async def release(self, name: str, holder: str) -> None:
        """Release a lease at once. Quiet when another replica holds it."""
        ...


@dataclass(frozen=True)
class Replica:
    """One process on the shared database."""

    id: str
    # all, api or worker
    role: str
    version: str
    # The machine and process, for people.
    place: str
    started_at: datetime
    seen_at: datetime


class Replicas(Protocol):
    """The running replicas."""

    async def heartbeat(self, replica: Replica, forget_before: datetime) -> Sequence[Replica]:
        """Record a heartbeat, delete replicas that were not seen for long, and return all, oldest first."""
        ...

    async def deregister(self, replica_id: str) -> None:
        """Deregister this replica."""
        ...


class Flags(Protocol):
    """Single values about the whole installation."""

    async def get(self, key: str) -> str | None: ...

    async def first(self, *keys: str) -> str | None:
        """Return the value of the first of these keys that has one, all from one read."""
        ...

    async def swap(
        self, key: str, old: str | None, new: str | None, audit_record: AuditRecord | None = None
    ) -> bool:
        """Replace `old` by `new` (None: no value) in one step.

        Return False if the present value is another.
        """
        ...

    async def put(self, key: str, value: str | None, audit_record: AuditRecord | None = None) -> None: ...
