"""How long an instance was in the status that a change has just ended."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.events import Event
from gpuherd.ports.meter import Meter
from gpuherd.ports.store import Change, Instances


class StatusTimes:
    """Measures by the history, which knows what happened before a restart or in another process."""

    def __init__(self, instances: Instances, meter: Meter) -> None:
        self._instances = instances
        self._meter = meter

    async def saved(self, change: Change) -> None:
        """Take note of a change that is written."""
        left = [it for it in change.events if it.before and it.after and it.before != it.after]
        if not left:
            return
        # It is written: that a time cannot be told just now must not look like a failed save.
        with contextlib.suppress(StoreUnavailable):
            history = await self._instances.events(change.instance.id)
            for event in left:
                self._measure(event, history)

    def _measure(self, left: Event, history: tuple[Event, ...]) -> None:
        came = [it for it in history if it.after == left.before and it.sequence < left.sequence]
        if came:
            # The wall clock may have been set back meanwhile.
            span = max(timedelta(0), left.at - came[-1].at)
            self._meter.status_left(left.before, span.total_seconds())
