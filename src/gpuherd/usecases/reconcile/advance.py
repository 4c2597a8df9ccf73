"""Advance: one turn of the loop. Look, decide, act, remember, until there is nothing to do but wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from gpuherd.clock import Clock
from gpuherd.domain import events
from gpuherd.domain.copying import replace
from gpuherd.domain.errors import CloudUnavailable, GpuherdError, KeyRefused, MachineGone
from gpuherd.domain.instance import Instance
from gpuherd.domain.lifecycle import next_step
from gpuherd.domain.sighting import Patience, Sighting, surely_absent
from gpuherd.domain.steps import Rest, Sight, Wait
from gpuherd.jobs.job import Job
from gpuherd.jobs.outcome import Done, Outcome, Snooze
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.store import Change, Turn, Turns
from gpuherd.usecases.activity import Activities, turn_kind
from gpuherd.usecases.chronicle import News
from gpuherd.usecases.clock_steps import ClockSteps
from gpuherd.usecases.planning_record import Awaited, awaited_in, awaiting
from gpuherd.usecases.take_step import Pause, TakeStep
from gpuherd.usecases.verify_tag import VerifyTag

# More steps than any instance needs in a row; a bound, so that a mistake cannot spin.
STEPS_MAX = 50
BUSY = timedelta(seconds=1)
CLOUD_AWAY = timedelta(seconds=5)


@dataclass
class AdvanceInstance:
    """The handler of every job that moves an instance."""

    turns: Turns
    cloud: Cloud
    activities: Activities
    take: TakeStep
    verify_tag: VerifyTag
    clock: Clock
    patience: Patience
    _steps: ClockSteps = field(init=False)

    def __post_init__(self) -> None:
        self._steps = ClockSteps(self.clock)

    async def __call__(self, job: Job) -> Outcome:
        turn = await self.turns.begin(job.instance_id or "", job.id)
        if turn is None:
            return Snooze(BUSY, "another turn is under way")
        try:
            return await self._advance(turn, job)
        finally:
            await self.turns.end(turn)

    async def _advance(self, turn: Turn, job: Job) -> Outcome:
        if (listed := _listed(turn)) is not None:
            turn = await self.verify_tag(turn, listed.machine)
        for _ in range(STEPS_MAX):
            try:
                sight = await self._look(turn)
                step = next_step(self._not_late(turn.instance), turn.open_attempt, sight, self.clock.now())
                if isinstance(step, Wait):
                    return await self._wait(turn, job, Pause(step.delay))
                if isinstance(step, Rest):
                    return await self._rest(turn, job)
                turn, pause = await self.take(step, turn)
            except (CloudUnavailable, KeyRefused) as error:
                turn = await self.turns.refresh(turn)
                reason = f"waiting for the cloud: {error.message}"
                pause = Pause(_cloud_away(error), reason, awaiting(Awaited.CLOUD, error))
            if pause is not None:
                return await self._wait(turn, job, pause)
        raise GpuherdError(f"instance {turn.instance.id} took {STEPS_MAX} steps and is not done")

    def _not_late(self, it: Instance) -> Instance:
        """A wall clock that was set ahead makes nobody late."""
        deadline = self._steps.deadline_of(it)
        return it if deadline == it.deadline else replace(it, deadline=deadline)

    async def _look(self, turn: Turn) -> Sight:
        """Return what the cloud shows of the machine. That it is gone takes two: lists, and a question."""
        it = turn.instance
        listed = _listed(turn)
        if it.cloud_id is None:
            return Sight()
        if not surely_absent(listed, it.asked_at, turn.lists, self.patience):
            return Sight(listed.machine, changed_at=listed.changed_at) if listed else Sight()
        try:
            return Sight(await self.cloud.get_machine(it.cloud_id))
        except MachineGone:
            return Sight(listed.machine if listed else None, absent=True)

    async def _wait(self, turn: Turn, job: Job, pause: Pause) -> Outcome:
        """Answer that there is nothing to do for a while; under another name if the activity has changed."""
        begins = awaited_in(turn.instance.reason) is not awaited_in(pause.reason)
        if pause.record is not None and begins:
            turn = await self._record(turn, pause)
        instance = replace(turn.instance, reason=pause.reason) if pause.reason else turn.instance
        if turn_kind(instance) != job.kind:
            activity = self.activities.turn(instance)
            change = Change(instance, finished_job=job.id, jobs=(activity,), ends_turn=True)
            await self.turns.save(turn, change)
            return Done(written=True)
        if instance != turn.instance:
            await self.turns.save(turn, Change(instance, ends_turn=True))
        return Snooze(pause.delay, instance.reason)

    async def _record(self, turn: Turn, pause: Pause) -> Turn:
        """Put on record that a wait begins; how often it is looked again meanwhile is not worth it."""
        waiting = replace(turn.instance, reason=pause.reason)
        news = News(events.WAITING, pause.reason, dict(pause.record or {}))
        return await self.turns.save(turn, self.take.chronicle.change(waiting, news))

    async def _rest(self, turn: Turn, job: Job) -> Outcome:
        resting = replace(turn.instance, settled=True)
        await self.turns.save(turn, Change(resting, finished_job=job.id, ends_turn=True))
        return Done(written=True)


def _listed(turn: Turn) -> Sighting | None:
    """Return what the lists say of the instance's own machine."""
    return next((it for it in turn.sightings if it.machine.cloud_id == turn.instance.cloud_id), None)


def _cloud_away(error: CloudUnavailable | KeyRefused) -> timedelta:
    asked_s = error.retry_after_s if isinstance(error, CloudUnavailable) else None
    return timedelta(seconds=asked_s) if asked_s else CLOUD_AWAY
