"""Detect steps of the wall clock, and move what was promised as a span of time along with the clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import health_begun_at, health_over_at, is_starting_again
from gpuherd.domain.instance.lease import LeaseTerm
from gpuherd.ports.clock_port import Clock

log = structlog.get_logger()


# Less is drift, or a machine that was busy between the two readings.
STEP_MIN = timedelta(seconds=30)


# As many as anybody will ever ask about: what they concern has long ended.
STEPS_KEPT_MAX = 20


class ClockStepDetector:
    """The steps of the wall clock in the life of this process.

    A host that sleeps wakes up with a step, too, where only time counts in which somebody could act. With
    `counts_sleep` it does not: what costs money goes on costing it meanwhile.
    """

    def __init__(self, clock: Clock, *, counts_sleep: bool = False):
        self._clock = clock
        self._timer = clock.boottime if counts_sleep else clock.monotonic
        self._wall, self._passed_s = clock.now(), self._timer()
        # Each step: what the clock showed just before it, and by how much it was set.
        self._steps: list[tuple[datetime, timedelta]] = []
        # All that was ever noticed here.
        self._total = timedelta(0)

    def detect_step(self) -> timedelta:
        """Return by how much the wall clock was set since the last look."""
        wall, passed_s = self._clock.now(), self._timer()
        expected = self._wall + timedelta(seconds=passed_s - self._passed_s)
        self._wall, self._passed_s = wall, passed_s
        step = wall - expected
        if abs(step) < STEP_MIN:
            return timedelta(0)
        log.warning("clock.step_detected", seconds=round(step.total_seconds(), 1))
        self._steps = [*self._steps[1 - STEPS_KEPT_MAX :], (expected, step)]
        self._total += step
        return step

    def total(self) -> timedelta:
        """Return by how much the wall clock was set in all since this process began."""
        self.detect_step()
        return self._total

    def ahead_since(self, moment: datetime) -> timedelta:
        """Return how much of the time since `moment` has passed on the wall clock only.

        What the clock showed may have come twice, before it was set back and after: then the longer time
        counts, so that nothing ends too early. A moment of the clock as it is now is never ahead: the clock
        was set on past all that it showed before, or it is not ahead of that.
        """
        self.detect_step()
        net = most = timedelta(0)
        for number in reversed(range(len(self._steps))):
            before, step = self._steps[number]
            net += step
            # Since the step before this one the clock has shown what lies between the two.
            since = None if number == 0 else self._steps[number - 1][0] + self._steps[number - 1][1]
            # guard: a step that a clock has gone back behind moves no end
            if moment <= before and (since is None or since <= moment):
                most = max(most, net)
        return most

    def deadline_of(self, instance: Instance) -> datetime:
        """Return the deadline by the clock as it is now: what was promised is a span of time, not a date."""
        start = instance.operation if is_starting_again(instance) else None
        set_at = start.requested_at if start is not None else instance.created_at
        deadline = instance.deadline + self.ahead_since(set_at)
        begun, over = health_begun_at(instance), health_over_at(instance)
        return deadline if begun is None or over is None else max(deadline, over + self.ahead_since(begun))


@dataclass(frozen=True)
class _Move:
    """A lease whose end was moved: the lease after that, by how much in all, and all steps until then."""

    term: LeaseTerm
    by: timedelta
    total: timedelta

    def is_of(self, term: LeaseTerm) -> bool:
        """Return True if no other end was agreed on since."""
        return (term.ends_at, term.set_at) == (self.term.ends_at, self.term.set_at)


class ClockAdjustments:
    """Moves deadlines, leases and waits along with the wall clock when somebody sets the clock."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self.steps = ClockStepDetector(clock)
        # What costs money also costs money while the host sleeps.
        self._lease_steps = ClockStepDetector(clock, counts_sleep=True)
        # Since then this process has received heartbeats.
        self.started_at = clock.now()
        # The leases, by instance, whose end this process has moved because the clock was set ahead.
        self._moves: dict[str, _Move] = {}

    async def watch(self) -> None:
        """Notice each step of the clock separately: two steps taken for one would move the ends wrongly."""
        self._lease_steps.detect_step()

    def ahead_since(self, moment: datetime) -> timedelta:
        """Return how much of the time since `moment` has passed on the wall clock only."""
        return self.steps.ahead_since(moment)

    def up_since(self) -> datetime:
        """Return the start of this process by the clock as it is now."""
        return self.started_at + self._lease_steps.ahead_since(self.started_at)

    def with_deadline(self, instance: Instance) -> Instance:
        """Return the instance with its deadline by the clock as it is now."""
        deadline = self.steps.deadline_of(instance)
        return instance if deadline == instance.deadline else replace(instance, deadline=deadline)

    def with_lease(self, instance: Instance) -> Instance:
        """Return the instance with the end of its lease by the clock as it is now.

        A clock that was set ahead ends no lease earlier, nor does the next process; a clock that is set right
        again ends none later.
        """
        term = instance.lease_term
        if term is None or term.ended:
            return instance
        ahead = self._lease_steps.ahead_since(term.set_at)
        step = ahead or -self._set_back(instance.id, term)
        # guard: a clock that is set ahead ends no lease
        moved = term.moved(step, self._clock.now())
        if moved is term:
            return instance
        self._note_moved(instance.id, term, moved)
        return replace(instance, lease_term=moved)

    def with_times_of_use(self, instance: Instance) -> Instance:
        """Return the instance with the times of its use by the clock as it is now.

        No instance was silent, or stopped, for an hour that the wall clock has skipped.
        """
        terms = instance.terms
        if terms.silence is None and terms.idle is None and terms.delete_stopped_s is None:
            return instance
        # guard: a clock that is set ahead deletes nothing that is stopped
        # guard: a clock that is set ahead is no silence
        return replace(
            instance,
            ready_at=self._moved(instance.ready_at),
            usable_at=self._moved(instance.usable_at),
            used_at=self._moved(instance.used_at),
            stopped_at=self._moved(instance.stopped_at),
        )

    def _moved(self, moment: datetime | None) -> datetime | None:
        return None if moment is None else moment + self._lease_steps.ahead_since(moment)

    def _set_back(self, instance_id: str, term: LeaseTerm) -> timedelta:
        """Return how much of what this process has moved an end by was taken back by the clock since.

        It is never more than that, and nothing for a move of another process, whose steps are unknown here.
        """
        move = self._moves.get(instance_id)
        # guard: an end that was agreed on anew is not moved back
        if move is None or not move.is_of(term):
            return timedelta(0)
        # guard: a clock that is set back takes no more of a lease than it has moved
        return max(timedelta(0), min(move.by, move.total - self._lease_steps.total()))

    def _note_moved(self, instance_id: str, before: LeaseTerm, after: LeaseTerm) -> None:
        known = self._moves.pop(instance_id, None)
        earlier = known.by if known is not None and known.is_of(before) else timedelta(0)
        by = earlier + (after.ends_at - before.ends_at)
        if by > timedelta(0):
            self._moves[instance_id] = _Move(after, by, self._lease_steps.total())
