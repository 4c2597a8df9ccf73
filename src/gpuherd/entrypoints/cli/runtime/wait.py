"""Waits for one instance to its end, and knows what to print to somebody who leaves early."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gpuherd.clock import Clock
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.instances import endpoint_lines
from gpuherd.entrypoints.cli.render.output import Output, safe
from gpuherd.entrypoints.cli.render.progress import SilentWatcher, watcher_for
from gpuherd.entrypoints.cli.render.tables import pairs
from gpuherd.entrypoints.cli.render.times import remaining_time
from gpuherd.entrypoints.cli.runtime.connection import ApiClient
from gpuherd.entrypoints.cli.runtime.errors import NotReached, TimedOut, command, wait_command
from gpuherd.entrypoints.cli.runtime.follow import Watcher, follow


class InstanceWaiter:
    """Follows what `begin` finds or makes. `unanswered` is the farewell before that has happened.

    `ordered` means that an operation is followed, and not only the instance.
    """

    def __init__(
        self,
        output: Output,
        clock: Clock,
        timeout_s: float,
        *,
        what: WaitFor = WaitFor.READY,
        ordered: bool = False,
        unanswered: str = "",
    ) -> None:
        self.deadline = clock.monotonic() + timeout_s
        self._output = output
        self._clock = clock
        self.what = what
        self._ordered = ordered
        self._unanswered = unanswered
        self._details: Details | None = None

    async def wait_to_end(self, api: ApiClient, begin: Callable[[Watcher], Awaitable[Details]]) -> None:
        """Return when it is there; raise NotReached or TimedOut. The last state goes to stdout anyway."""
        try:
            async with watcher_for(self._output, self._clock, self.what, ordered=self._ordered) as watcher:
                details = await follow(
                    api,
                    await self.begin_only(begin, watcher),
                    what=self.what,
                    clock=self._clock,
                    deadline=self.deadline,
                    watcher=watcher,
                )
        except TimedOut as late:
            self._conclude(late.details)
            raise
        self._conclude(details)
        if not details.reached(self.what):
            raise NotReached(details)

    async def begin_only(
        self, begin: Callable[[Watcher], Awaitable[Details]], watcher: Watcher | None = None
    ) -> Details:
        """Begin, without following yet."""
        self._details = await begin(watcher or SilentWatcher())
        return self._details

    def interrupt_message(self) -> str:
        """Say how to come back."""
        if self._details is None:
            return self._unanswered
        return f"still working in the background; follow it with: {wait_command(self._details, self.what)}"

    def _conclude(self, details: Details) -> None:
        if not self._output.for_people:
            self._output.answer(details.raw, details.id)
        elif self.what is WaitFor.READY and details.usable and details.endpoints:
            self._output.show(pairs(endpoint_lines(details)))


def print_accepted(output: Output, details: Details, clock: Clock) -> None:
    """Tell about a create that nobody waits for."""
    if not output.for_people:
        output.answer(details.raw, details.id)
        return
    estimate = details.time("estimatedReadyTime")
    left = f", {remaining_time(estimate, clock.now())}" if estimate else ""
    output.out.print(f"{safe(details.name)} is accepted as {safe(details.id)}{left}", soft_wrap=True)
    output.note(f"follow it with: {command('wait', details)}")
