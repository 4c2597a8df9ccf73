"""One instance on its way: watch it to the end, and know what to say to somebody who leaves early."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gpuherd.clock import Clock
from gpuherd.entrypoints.cli.connection import ApiClient
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.failures import NotReady, TimedOut, command
from gpuherd.entrypoints.cli.follow import Watcher, follow
from gpuherd.entrypoints.cli.instance_views import endpoint_lines
from gpuherd.entrypoints.cli.output import Output, safe
from gpuherd.entrypoints.cli.progress import watching
from gpuherd.entrypoints.cli.tables import pairs
from gpuherd.entrypoints.cli.times import remaining


class Pursuit:
    """Follows what `begin` finds or makes. `unanswered` is the farewell before that has happened."""

    def __init__(self, output: Output, clock: Clock, timeout_s: float, *, unanswered: str = "") -> None:
        self.deadline = clock.monotonic() + timeout_s
        self._output = output
        self._clock = clock
        self._unanswered = unanswered
        self._details: Details | None = None

    async def to_the_end(self, api: ApiClient, begin: Callable[[Watcher], Awaitable[Details]]) -> None:
        """Return when it is usable; raise NotReady or TimedOut. The last state goes to stdout in any case."""
        try:
            async with watching(self._output, self._clock) as watcher:
                self._details = await begin(watcher)
                details = await follow(
                    api, self._details, clock=self._clock, deadline=self.deadline, watcher=watcher
                )
        except TimedOut as late:
            self._conclude(late.details)
            raise
        self._conclude(details)
        if not details.usable:
            raise NotReady(details)

    def farewell(self) -> str:
        """Say how to come back."""
        if self._details is None:
            return self._unanswered
        return f"still working in the background; follow it with: {command('wait', self._details)}"

    def _conclude(self, details: Details) -> None:
        if not self._output.for_people:
            self._output.answer(details.raw, details.id)
        elif details.usable and details.endpoints:
            self._output.show(pairs(endpoint_lines(details)))


def say_accepted(output: Output, details: Details, clock: Clock) -> None:
    """Tell about a create that nobody waits for."""
    if not output.for_people:
        output.answer(details.raw, details.id)
        return
    estimate = details.time("estimatedReadyTime")
    left = f", {remaining(estimate, clock.now())}" if estimate else ""
    output.out.print(f"{safe(details.name)} is accepted as {safe(details.id)}{left}", soft_wrap=True)
    output.note(f"follow it with: {command('wait', details)}")
