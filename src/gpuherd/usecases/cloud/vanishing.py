"""The brake on vanishing: when a list lacks too many machines at once, none of them is believed lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.observation import ObservedMachine, SettlingPolicy
from gpuherd.domain.cloud.vanishing import newly_lost, vanishing_brake
from gpuherd.ports.flags import Flags
from gpuherd.ports.observations import Observations

log = structlog.get_logger()

# Why no loss is believed.
VANISHING_HELD = "vanishing_held"
# Until when a person has confirmed that what is missing is gone.
LOSS_CONFIRMED_AT = "loss_confirmed_at"
# When how many losses were believed lately. In the store: the next one who looks may be another replica.
LOSSES_BELIEVED = "losses_believed"


@dataclass(frozen=True, kw_only=True)
class VanishingBrake:
    """Judges each list before it is written down; the flag is for people, the next list decides anew."""

    flags: Flags
    observations: Observations
    clock: Clock
    settling: SettlingPolicy

    async def holds(self, changed: Sequence[ObservedMachine]) -> bool:
        """Tell whether a list with these changes lacks too many machines to be believed."""
        reason = await self._reason(changed)
        # Asked each time: another replica may have looked since, or an older database been put back.
        was_held = await self.held() is not None
        if reason is not None and not was_held:
            log.error("observer.vanishing_held", reason=reason)
            await self.flags.put(VANISHING_HELD, reason)
        elif reason is None and was_held:
            log.info("observer.vanishing_released")
            await self.flags.put(VANISHING_HELD, None)
        return reason is not None

    async def held(self) -> str | None:
        """Say why no loss is believed, None if it is."""
        return await self.flags.get(VANISHING_HELD)

    async def confirm(self, caller: Caller) -> None:
        """Take the word of an admin that what is missing now is gone."""
        now = self.clock.now()
        audit_record = caller.audit_record("cloud.confirm_loss", "cloud", now, await self.held() or "")
        await self.flags.put(LOSS_CONFIRMED_AT, now.isoformat(), audit_record)

    async def _reason(self, changed: Sequence[ObservedMachine]) -> str | None:
        if not (lost := newly_lost(changed, None)):
            return None
        confirmed = await self.flags.get(LOSS_CONFIRMED_AT)
        lost = newly_lost(changed, None if confirmed is None else datetime.fromisoformat(confirmed))
        bound, now = await self.observations.bound_to(lost), self.clock.now()
        if not bound.lost:
            return None
        lately = await self._believed_lately(now)
        reason = vanishing_brake(bound.lost, sum(n for _, n in lately), bound.instances)
        if reason is None:
            believed = [*lately, (now.timestamp(), bound.lost)]
            await self.flags.put(LOSSES_BELIEVED, json.dumps(believed))
        return reason

    async def _believed_lately(self, now: datetime) -> list[tuple[float, int]]:
        """Return when how many losses were believed within the last cycle, by whichever replica."""
        cycle_s = self.settling.collection_cycle.total_seconds()
        kept = json.loads(await self.flags.get(LOSSES_BELIEVED) or "[]")
        return [(at, n) for at, n in kept if abs(now.timestamp() - at) < cycle_s]
