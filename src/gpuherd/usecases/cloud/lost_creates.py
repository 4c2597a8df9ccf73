"""Create calls that the store has lost together with their intents.

Such a call may still be under way, or its machine not yet listed. So it is given the same time as a call of
unknown outcome, and an instance that may have made one rents only after that.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.domain.cloud.observation import SettlingPolicy, is_proven_not_created
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.observations import Observations
from gpuherd.usecases.replicas.store_history import StoreHistory


@dataclass(frozen=True)
class LostCreates:
    """What `RentMachine` asks before it rents."""

    history: StoreHistory
    observations: Observations
    clock: Clock
    settling: SettlingPolicy

    async def may_exist(self, it: Instance) -> bool:
        """Tell whether a create call for this instance may have been lost, and not be visible yet."""
        lost_at = self.history.lost_at
        if lost_at is None or it.created_at > lost_at:
            return False
        lists = await self.observations.lists_since(lost_at)
        return not is_proven_not_created(lost_at, lists, self.clock.now(), self.settling)
