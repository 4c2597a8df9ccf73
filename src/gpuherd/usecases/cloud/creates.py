"""Creates: whether new machines may be rented at all, and the way back when they may not."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.ports.flags import Flags

# The flag that says why no machine may be rented.
CREATES_BLOCKED = "creates_blocked"


@dataclass(frozen=True)
class ManageCreates:
    """A lost tag blocks all creates, until somebody has looked."""

    flags: Flags
    clock: Clock

    async def blocked(self) -> str | None:
        """Return why creates are blocked, None if they are not."""
        return await self.flags.get(CREATES_BLOCKED)

    async def resume(self, caller: Caller) -> None:
        """Allow creates again."""
        blocked = await self.blocked()
        audit_record = caller.audit_record("creates.resume", "creates", self.clock.now(), blocked or "")
        await self.flags.put(CREATES_BLOCKED, None, audit_record)
