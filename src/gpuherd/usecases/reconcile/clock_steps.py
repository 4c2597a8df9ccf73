"""Detects steps of the wall clock by comparing it with the monotonic clock."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import health_begun_at, health_over_at, is_starting_again
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
