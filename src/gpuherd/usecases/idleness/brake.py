"""The brake on idleness: when too many may have become idle at one moment, none of them ends by it."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.endings.idle_brake import TOGETHER, IdleSpell, judge_spells
from gpuherd.domain.endings.idleness import (
    CLOCK_OFF_MAX,
    RETRY_AFTER,
    SAMPLES_APART_MAX,
    UseWatch,
    sample_interval,
)
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.flags import Flags
from gpuherd.ports.observations import Observations

log = structlog.get_logger()

# Why nothing ends by idleness.
AUTO_STOP_BRAKED = "auto_stop_braked"
# What the brake must remember. In the store: the next leader may be another replica.
IDLE_FOUND = "idle_found"
# Those that are held are looked at again after a while, and must count until then.
HELD_COUNTS = 2 * RETRY_AFTER


@dataclass(frozen=True)
class Looks:
    """What a round of looks has shown."""

    over: Sequence[tuple[Instance, UseWatch]] = ()
    # Which were not idle, and when they were last used, as far as anybody has seen or said.
    in_use: Mapping[str, datetime] = field(default_factory=dict)
    # Which of them the metrics have shown in use, and when.
    seen_in_use: Mapping[str, datetime] = field(default_factory=dict)
    # All that were looked at: where a look tells nothing, one that is held goes on counting.
    looked: Sequence[str] = ()


@dataclass(frozen=True)
class _Memory:
    spells: Mapping[str, IdleSpell]
    # When the metrics have shown others in use, while anything waits for its end.
    used_s: Mapping[str, float]


@dataclass(frozen=True)
class IdleBrake:
    """Judges all that would end together; the flag is for people, the next look decides anew."""

    flags: Flags
    observations: Observations
    clock: Clock

    async def may_end(self, looks: Looks) -> frozenset[str]:
        """Return which of those whose time is over may end."""
        now_s, was_held = self.clock.now().timestamp(), await self.held() is not None
        before = await self._recall()
        spells = _still_counting(before.spells, looks, now_s, is_braked=was_held)
        if not spells and not looks.over and not was_held:
            return frozenset()
        for it, watch in looks.over:
            spells[it.id] = _spell(it, watch, spells.get(it.id), now_s)
        bound = await self.observations.bound_to([])
        used_s = {**before.used_s, **{key: at.timestamp() for key, at in looks.seen_in_use.items()}}
        verdict = judge_spells([it.id for it, _ in looks.over], spells, used_s, bound.instances, now_s)
        for key in verdict.may_end:
            spells[key] = replace(spells[key], has_ended=True)
        waits = any(not it.has_ended for it in spells.values())
        await self._remember(before, _Memory(spells, _newest(used_s, len(spells)) if waits else {}))
        await self._tell(verdict.reason)
        return verdict.may_end

    async def held(self) -> str | None:
        """Say why some do not end by idleness, None if all may."""
        return await self.flags.get(AUTO_STOP_BRAKED)

    async def _recall(self) -> _Memory:
        kept = json.loads(await self.flags.get(IDLE_FOUND) or "{}")
        spells = {key: IdleSpell.from_doc(doc) for key, doc in kept.get("spells", {}).items()}
        return _Memory(spells, kept.get("used", {}))

    async def _remember(self, before: _Memory, memory: _Memory) -> None:
        if memory == before:
            return
        doc = {"spells": {key: asdict(it) for key, it in memory.spells.items()}, "used": memory.used_s}
        await self.flags.put(IDLE_FOUND, json.dumps(doc) if memory.spells else None)

    async def _tell(self, reason: str | None) -> None:
        said = await self.held()
        if (reason is None) == (said is None):
            return
        if reason is not None:
            log.error("idleness.braked", reason=reason)
        else:
            log.info("idleness.released")
        await self.flags.put(AUTO_STOP_BRAKED, reason)


def _still_counting(
    spells: Mapping[str, IdleSpell], looks: Looks, now_s: float, *, is_braked: bool
) -> dict[str, IdleSpell]:
    looked = set(looks.looked)
    # guard: metrics that are away release no brake
    return {
        key: replace(it, looked_s=now_s) if key in looked and not it.has_ended else it
        for key, it in spells.items()
        if it.counts(now_s, is_braked=is_braked) and not _is_used_since(looks.in_use.get(key), it)
    }


def _is_used_since(used_at: datetime | None, spell: IdleSpell) -> bool:
    """Tell whether an instance that was found idle is in use again. What is not known is no use here."""
    # The samples that it was found by are that much older at most.
    return used_at is not None and used_at.timestamp() > spell.looked_s - SAMPLES_APART_MAX.total_seconds()


def _spell(it: Instance, watch: UseWatch, before: IdleSpell | None, now_s: float) -> IdleSpell:
    rule = it.terms.idle
    assert rule is not None, "only what may end by idleness is looked at"
    began = watch.quiet_from or watch.looked_at - rule.window
    # Of a very long time the samples are further apart than beginnings that are told apart.
    is_beginning_seen = watch.is_beginning_seen and sample_interval(rule) <= TOGETHER
    # One that was ended and started again is found anew.
    found_s = now_s if before is None or before.has_ended else before.found_s
    counts_for_s = max(HELD_COUNTS.total_seconds(), rule.window_s)
    return IdleSpell(
        began_s=began.timestamp(),
        is_beginning_seen=is_beginning_seen,
        found_s=found_s,
        looked_s=now_s,
        counts_for_s=counts_for_s,
        not_before_s=(watch.busy_at or it.created_at - CLOCK_OFF_MAX).timestamp(),
    )


def _newest(used_s: Mapping[str, float], count: int) -> dict[str, float]:
    """Return no more than can matter: as many as are idle."""
    return dict(heapq.nlargest(count, used_s.items(), key=lambda it: it[1]))
