"""Audit trail: who did what."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.ports.access import AuditLog, AuditPage


@dataclass(frozen=True)
class AuditTrail:
    """Most records are written in the transaction of what they tell of; these are for everything else."""

    log: AuditLog
    clock: Clock

    async def append(
        self, caller: Caller, action: str, target: str, *, before: str = "", after: str = ""
    ) -> None:
        """Append a record just before an action; if that fails, the action must not be done."""
        await self.log.append(caller.audit_record(action, target, self.clock.now(), before, after))

    async def page(self, limit: int, cursor: int | None = None, *, oldest_first: bool = False) -> AuditPage:
        """Return entries, newest first unless told otherwise."""
        return await self.log.page(limit, cursor, oldest_first=oldest_first)
