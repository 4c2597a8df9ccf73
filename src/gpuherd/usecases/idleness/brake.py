"""The brake on idleness: when too many instances seem idle at once, none of them ends by it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.endings.idleness import BRAKE_SPAN_MIN, RETRY_AFTER, SAMPLES_APART_MAX, idle_brake
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.flags import Flags
from gpuherd.ports.observations import Observations

log = structlog.get_logger()

# Why nothing ends by idleness.
AUTO_STOP_BRAKED = "auto_stop_braked"
# Which were found idle lately, when, for how many seconds that counts, and whether they were ended for it. In
# the store: the next leader may be another replica.
IDLE_FOUND = "idle_found"
# Those that are held are looked at again after a while, and must count until then.
HELD_COUNTS = 2 * RETRY_AFTER

Found = dict[str, tuple[float, float, bool]]


@dataclass(frozen=True)
class IdleBrake:
    """Judges all that would end together; the flag is for people, the next look decides anew."""

    flags: Flags
    observations: Observations
    clock: Clock

    async def holds(
        self, over: Sequence[Instance], in_use: Mapping[str, datetime], looked: Sequence[str] = ()
    ) -> bool:
        """Tell whether none of those whose time is over may end.

        `in_use`: which were not idle, and when; `looked`: all that were looked at. Where a look tells
        nothing, one that is held goes on counting.
        """
        now = self.clock.now()
        before = await self._found_lately(now)
        found = {key: it for key, it in before.items() if not _is_used_since(in_use.get(key), it[0])}
        for key in looked:
            if key in found and not found[key][2]:
                found[key] = (now.timestamp(), *found[key][1:])
        together = {*found, *(it.id for it in over)}
        bound = await self.observations.bound_to([])
        reason = idle_brake(len(together), bound.instances) if together else None
        for it in over:
            found[it.id] = (now.timestamp(), _counts_for_s(it, is_held=reason is not None), reason is None)
        if found != before:
            await self.flags.put(IDLE_FOUND, json.dumps(found) if found else None)
        await self._tell(reason)
        return reason is not None

    async def held(self) -> str | None:
        """Say why nothing ends by idleness, None if it may."""
        return await self.flags.get(AUTO_STOP_BRAKED)

    async def _found_lately(self, now: datetime) -> Found:
        """Return whatever counts. While nothing may end, those that did go on counting: else the rest would
        follow them two by two."""
        kept: Mapping[str, Sequence[float]] = json.loads(await self.flags.get(IDLE_FOUND) or "{}")
        is_braked = await self.held() is not None
        # The version before did not write down which were ended.
        found = {key: (it[0], it[1], len(it) > 2 and bool(it[2])) for key, it in kept.items()}
        return {
            key: (at, for_s, ended)
            for key, (at, for_s, ended) in found.items()
            if (is_braked and ended) or abs(now.timestamp() - at) < for_s
        }

    async def _tell(self, reason: str | None) -> None:
        said = await self.held()
        if (reason is None) == (said is None):
            return
        if reason is not None:
            log.error("idleness.braked", reason=reason)
        else:
            log.info("idleness.released")
        await self.flags.put(AUTO_STOP_BRAKED, reason)


def _counts_for_s(it: Instance, *, is_held: bool) -> float:
    window_s = 0 if it.terms.idle is None else it.terms.idle.window_s
    counts = max(BRAKE_SPAN_MIN, HELD_COUNTS) if is_held else BRAKE_SPAN_MIN
    return max(counts.total_seconds(), window_s)


def _is_used_since(used_at: datetime | None, found_s: float) -> bool:
    """Tell whether an instance that was found idle is in use again. What is not known is no use here."""
    # The samples that it was found by are that much older at most.
    return used_at is not None and used_at.timestamp() > found_s - SAMPLES_APART_MAX.total_seconds()
