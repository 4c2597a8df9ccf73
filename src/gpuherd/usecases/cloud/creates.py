"""Creates: whether new machines may be rented at all, and the way back when they may not."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.ports.flags import Flags
from gpuherd.usecases.cloud.installation_alarm import INSTALLATION_SHARED, SHARING_CLEARED_AT

# The flag that says why no machine may be rented.
CREATES_BLOCKED = "creates_blocked"


@dataclass(frozen=True)
class ManageCreates:
    """A lost tag or a second user of our installation id blocks all creates, until somebody has looked."""

    flags: Flags
    clock: Clock

    async def blocked(self) -> str | None:
        """Return why creates are blocked, None if they are not."""
        return await self.flags.first(INSTALLATION_SHARED, CREATES_BLOCKED)

    async def resume(self, caller: Caller) -> None:
        """Allow creates again, and the collector if the same alarm has stopped it."""
        now, blocked = self.clock.now(), await self.blocked()
        if await self.flags.get(INSTALLATION_SHARED) is not None:
            # First, or the machine that raised the alarm would raise it again.
            await self.flags.put(SHARING_CLEARED_AT, now.isoformat())
            await self.flags.put(INSTALLATION_SHARED, None)
        audit_record = caller.audit_record("creates.resume", "creates", now, blocked or "")
        await self.flags.put(CREATES_BLOCKED, None, audit_record)
