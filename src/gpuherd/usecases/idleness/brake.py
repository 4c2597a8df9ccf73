"""The brake on idleness: when too many instances seem idle at once, none of them ends by it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.endings.idleness import BRAKE_SPAN_MIN, idle_brake
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.flags import Flags
from gpuherd.ports.observations import Observations

log = structlog.get_logger()

# Why nothing ends by idleness.
AUTO_STOP_BRAKED = "auto_stop_braked"
# Which were found idle lately, ended or not: when, and for how many seconds that counts. In the store: the
# next leader may be another replica.
IDLE_FOUND = "idle_found"

Found = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class IdleBrake:
    """Judges all that would end together; the flag is for people, the next look decides anew."""

    flags: Flags
    observations: Observations
    clock: Clock

    async def holds(self, over: Sequence[Instance], in_use: Iterable[str]) -> bool:
        """Tell whether none of those whose time is over may end. `in_use` were seen not to be idle."""
        now = self.clock.now()
        before = await self._found_lately(now)
        found = {key: it for key, it in before.items() if key not in set(in_use)}
        found |= {it.id: (now.timestamp(), _counts_for_s(it)) for it in over}
        if found != before:
            await self.flags.put(IDLE_FOUND, json.dumps(found) if found else None)
        bound = await self.observations.bound_to([])
        reason = idle_brake(len(found), bound.instances) if found else None
        await self._tell(reason)
        return reason is not None

    async def held(self) -> str | None:
        """Say why nothing ends by idleness, None if it may."""
        return await self.flags.get(AUTO_STOP_BRAKED)

    async def _found_lately(self, now: datetime) -> Found:
        kept: Mapping[str, tuple[float, float]] = json.loads(await self.flags.get(IDLE_FOUND) or "{}")
        return {key: (at, for_s) for key, (at, for_s) in kept.items() if abs(now.timestamp() - at) < for_s}

    async def _tell(self, reason: str | None) -> None:
        said = await self.held()
        if (reason is None) == (said is None):
            return
        if reason is not None:
            log.error("idleness.braked", reason=reason)
        else:
            log.info("idleness.released")
        await self.flags.put(AUTO_STOP_BRAKED, reason)


def _counts_for_s(it: Instance) -> float:
    window_s = 0 if it.terms.idle is None else it.terms.idle.window_s
    return max(BRAKE_SPAN_MIN.total_seconds(), window_s)
