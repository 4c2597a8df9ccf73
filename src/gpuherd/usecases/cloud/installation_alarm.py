"""Installation alarm: a second database rents under our installation id, and each sees the other's machines.

While the alarm is up nothing is rented, and nothing is removed but what a person asks to remove.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import structlog

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.instance.attempt import Attempt
from gpuherd.domain.orphans.shared_installation import is_made_by_another
from gpuherd.ports.flags import Flags
from gpuherd.usecases.replicas.store_history import StoreHistory

log = structlog.get_logger()

# The flag that says why nothing is rented or removed.
INSTALLATION_SHARED = "installation_shared"
# When somebody has last looked: what was made before is no news.
SHARING_CLEARED_AT = "installation_shared_cleared_at"


@dataclass(frozen=True, kw_only=True)
class InstallationAlarm:
    """Raised by the first machine that another database must have made; lowered by a person."""

    flags: Flags
    installation: str
    # When this process began: of create calls before that an old copy of the database may know nothing.
    begun_at: datetime
    history: StoreHistory
    settling: SettlingPolicy

    async def reason(self) -> str | None:
        """Return why the alarm is up, None if it is not."""
        return await self.flags.get(INSTALLATION_SHARED)

    async def is_proof(self, machine: Machine, attempts: Iterable[Attempt]) -> bool:
        """Tell whether a machine proves it, given the create calls of the instance that its tag names."""
        if not is_made_by_another(machine, attempts, self.installation, self._complete_since()):
            return False
        cleared = await self.flags.get(SHARING_CLEARED_AT)
        return cleared is None or is_made_by_another(
            machine, attempts, self.installation, datetime.fromisoformat(cleared)
        )

    def _complete_since(self) -> datetime:
        """Return since when every create call under our id is in this database, if it is the only one."""
        lost_at = self.history.lost_at
        # A call that the store has lost may take effect for as long as one of unknown outcome.
        return self.begun_at if lost_at is None else max(self.begun_at, lost_at + self.settling.settle)

    async def raise_for(self, machine: Machine) -> str:
        """Raise the alarm, and return its reason."""
        reason = (
            f"machine {machine.cloud_id} was made under our installation id ({self.installation}), but not "
            "by this database: a copy of it seems to run beside it. Nothing is rented or removed by itself. "
            "Stop the other one for good, look at `gpuherd orphans`, then `gpuherd creates resume`"
        )
        if await self.reason() is None:
            await self.flags.put(INSTALLATION_SHARED, reason)
            log.error("installation.shared", cloud_id=machine.cloud_id, installation=self.installation)
        return reason
