"""The brake on vanishing: when a list lacks too many machines at once, none of them is believed lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.cloud.observation import ObservedMachine, SettlingPolicy
from gpuherd.domain.cloud.vanishing import newly_lost, unlisted, vanishing_brake
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

    async def holds(
        self, changed: Sequence[ObservedMachine], known: Mapping[str, ObservedMachine], listing: Listing
    ) -> bool:
        """Tell whether a list with these changes to what is known lacks too many machines to be believed."""
        reason = await self._reason(changed, known, listing)
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

    async def _reason(
        self, changed: Sequence[ObservedMachine], known: Mapping[str, ObservedMachine], listing: Listing
    ) -> str | None:
        if not newly_lost(changed, None):
            return None
        text = await self.flags.get(LOSS_CONFIRMED_AT)
        confirmed_at = None if text is None else datetime.fromisoformat(text)
        lost, now = await self.observations.bound_to(newly_lost(changed, confirmed_at)), self.clock.now()
        if not lost.lost:
            return None
        listed = {it.cloud_id for it in listing.machines}
        # guard: what one list lacks is judged together
        missing = await self.observations.bound_to(unlisted(known, listed, confirmed_at))
        # guard: losses that another replica has just believed count for the brake
        lately = await self._believed_lately(now)
        reason = vanishing_brake(missing.lost, sum(n for _, n in lately), missing.instances)
        if reason is None:
            believed = [*lately, (now.timestamp(), lost.lost)]
            await self.flags.put(LOSSES_BELIEVED, json.dumps(believed))
        return reason

    async def _believed_lately(self, now: datetime) -> list[tuple[float, int]]:
        """Return when how many losses were believed within the last cycle, by whichever replica."""
        cycle_s = self.settling.collection_cycle.total_seconds()
        kept = json.loads(await self.flags.get(LOSSES_BELIEVED) or "[]")
        return [(at, n) for at, n in kept if abs(now.timestamp() - at) < cycle_s]
