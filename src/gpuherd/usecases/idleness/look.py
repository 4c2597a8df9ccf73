"""Look at the use of one instance: ask its application, then the cloud's metrics, and judge."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuherd.clock import Clock
from gpuherd.domain.endings.idleness import (
    CLOCK_OFF_MAX,
    LOOK_AGAIN,
    UNKNOWN_USE,
    AppAnswer,
    CloudTime,
    MachineUse,
    UseWatch,
    after_answer,
    are_late,
    asked_span,
    first_end,
    judge,
    latest_cloud_time,
    must_read_samples,
    sample_interval,
    use_of,
)
from gpuherd.domain.endings.terms import ActivityCheck, Idleness
from gpuherd.domain.errors import CloudError, RateLimited
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lifecycle.due import usable_since
from gpuherd.ports.use import ActivityProbe, UseMetrics


@dataclass(kw_only=True)
class LookAtUse:
    """Asks, and writes nothing down."""

    metrics: UseMetrics
    activity: ActivityProbe
    clock: Clock
    # Since when anybody could have told us that an instance is in use.
    up_since: datetime
    # By what our own clock and the metrics of all machines have shown.
    _cloud_time: CloudTime | None = field(default=None, init=False)

    def note_time(self, reached: datetime | None = None) -> None:
        """Note what the clock shows, or what the metrics have reached: it may be set back any time."""
        now, uptime_s = self.clock.now(), self.clock.boottime()
        self._cloud_time = latest_cloud_time(self._cloud_time, reached or now, uptime_s)

    async def __call__(self, it: Instance) -> UseWatch | None:
        """Return what is known now; None: the budget of calls is used up, and the look is still due."""
        rule = it.terms.idle
        usable_from = usable_since(it)
        assert rule is not None and usable_from is not None, "only what can be idle is looked at"
        watch = it.use_watch
        if rule.activity is not None:
            answer = await self._ask(it, rule.activity)
            watch = after_answer(rule, watch, answer, self.clock.now())
        if watch is not None and not must_read_samples(rule, watch, self.clock.now()):
            return watch
        try:
            use = await self._read(it, rule)
        except RateLimited:
            # Whom the application was asked about is not asked again at once.
            return (
                None
                if rule.activity is None or watch is None
                else replace(watch, look_at=self.clock.now() + LOOK_AGAIN)
            )
        return judge(rule, watch, use, self._not_before(it, rule, usable_from), self.clock.now())

    async def _ask(self, it: Instance, check: ActivityCheck) -> AppAnswer:
        port = next((port for port in it.ports if port.port == check.port), None)
        return AppAnswer() if port is None else await self.activity.ask(port, check.path)

    async def _read(self, it: Instance, rule: Idleness) -> MachineUse | None:
        known_until = None if it.use_watch is None else it.use_watch.known_until
        # Where none is known, all of the machine, whatever our clock showed when it was rented.
        known_until = known_until or it.created_at - CLOCK_OFF_MAX
        begin, end = asked_span(rule, self.clock.now(), known_until)
        try:
            samples = await self.metrics.samples(it.cloud_id or "", begin, end, sample_interval(rule))
        except RateLimited:
            raise
        except CloudError:
            # guard: metrics that are away are use
            return None
        # What comes from after the time that was asked for is nonsense.
        if newest := max((it.at for it in samples if it.at <= end), default=None):
            self.note_time(newest)
        if are_late(samples, self._cloud_time, self.clock.boottime()):
            return UNKNOWN_USE
        return use_of(samples, rule, it.wish.gpu_num, self.clock.now())

    def _not_before(self, it: Instance, rule: Idleness, usable_since: datetime) -> datetime:
        earliest = first_end(rule, usable_since, it.used_at)
        # Whoever sends heartbeats may have sent one that we were not there to hear.
        # guard: a heartbeat that nobody was there to hear counts
        return earliest if it.used_at is None else max(earliest, self.up_since + rule.window)
