"""How long an instance was in the status that a change has just ended."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.instance.events import Event
from gpuherd.ports.instances import Change, Instances
from gpuherd.ports.metrics import Meter


class StatusTimes:
    """Measures by the history, which knows what happened before a restart or in another process."""

    def __init__(self, instances: Instances, meter: Meter) -> None:
        self._instances = instances
        self._meter = meter

    async def saved(self, change: Change) -> None:
        """Take note of a change that is written."""
        exits = [it for it in change.events if it.before and it.after and it.before != it.after]
        if not exits:
            return
        # It is written: that a time cannot be told just now must not look like a failed save.
        with contextlib.suppress(StoreUnavailable):
            history = await self._instances.events(change.instance.id)
            for event in exits:
                self._measure(event, history)

    def _measure(self, exits: Event, history: tuple[Event, ...]) -> None:
        entered = [it for it in history if it.after == exits.before and it.sequence < exits.sequence]
        if entered:
            # The wall clock may have been set back meanwhile.
            span = max(timedelta(0), exits.at - entered[-1].at)
            self._meter.status_left(exits.before, span.total_seconds())
