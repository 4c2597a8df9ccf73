"""Turns that tell a meter what they have changed, once it is written."""

from __future__ import annotations

from gpuherd.adapters.metrics.status_times import StatusTimes
from gpuherd.domain.attempt import Attempt
from gpuherd.ports.meter import Meter
from gpuherd.ports.store import Change, Instances, Turn, Turns


class MeteredTurns:
    """Any `Turns`, with their create calls counted and the time in each status measured.

    Only what was saved counts, so a turn that has lost its lease counts nothing.
    """

    def __init__(self, turns: Turns, instances: Instances, meter: Meter) -> None:
        self._turns = turns
        self._times = StatusTimes(instances, meter)
        self._meter = meter

    async def begin(self, instance_id: str, job_id: str | None) -> Turn | None:
        return await self._turns.begin(instance_id, job_id)

    async def save(self, turn: Turn, change: Change) -> Turn:
        saved = await self._turns.save(turn, change)
        if change.attempt is not None and _is_new(change.attempt, turn.attempts):
            self._meter.attempt(change.attempt.state.value)
        await self._times.saved(change)
        return saved

    async def refresh(self, turn: Turn) -> Turn:
        return await self._turns.refresh(turn)

    async def end(self, turn: Turn) -> None:
        await self._turns.end(turn)


def _is_new(attempt: Attempt, known: tuple[Attempt, ...]) -> bool:
    return all((it.n, it.state) != (attempt.n, attempt.state) for it in known)
