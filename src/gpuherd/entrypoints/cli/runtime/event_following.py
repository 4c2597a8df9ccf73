"""Following the stream of events: when it breaks, on from the last event, without gap or repeat."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from gpuherd.clock import Clock
from gpuherd.entrypoints.cli.render.output import Output, safe
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Json
from gpuherd.entrypoints.cli.runtime.problems import ApiProblem, CannotConnect

STREAM = "/api/events"
# The server gives a sign of life every 15 seconds.
SILENCE_MAX_S = 45.0
FIRST_PAUSE_S, PAUSE_MAX_S = 0.5, 10.0


class Follower:
    """Where we are in the stream, and how it goes."""

    def __init__(self, api: ApiClient, clock: Clock, output: Output, last: str):
        self._api = api
        self._clock = clock
        self._output = output
        self._last = last
        self._pause_s = FIRST_PAUSE_S
        self._lost = False

    async def listen(self, wanted: Sequence[tuple[str, str]], show: Callable[[Json], None]) -> None:
        """Show what comes, until the stream ends."""
        # Only those who follow need it, and the client takes a while to load.
        from gpuherd.client.sse import SseParser  # noqa: PLC0415

        headers = {"Accept": "text/event-stream", "Last-Event-ID": self._last}
        messages = SseParser()
        async for chunk in self._api.listen(STREAM, wanted, headers, silence_s=SILENCE_MAX_S):
            self._found()
            for message in messages.feed(chunk):
                event = json.loads(message.data)
                if isinstance(event, dict):
                    show(event)
                    self._last = message.id

    async def wait(self, why: str, at_least_s: float = 0.0) -> None:
        """Wait before the next try, longer each time; say so once."""
        if not self._lost and why:
            self._lost = True
            self._output.note(f"{safe(why)}; trying again (Ctrl-C ends)", "yellow")
        await self._clock.sleep(max(self._pause_s, at_least_s))
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)

    def _found(self) -> None:
        self._pause_s = FIRST_PAUSE_S
        if self._lost:
            self._lost = False
            self._output.note("connected again; nothing was missed", "dim")


async def follow_events(
    api: ApiClient,
    clock: Clock,
    output: Output,
    wanted: Sequence[tuple[str, str]],
    last: str,
    show: Callable[[Json], None],
) -> None:
    """Show events behind `last` as they come, for ever; raise what no patience helps against."""
    follower = Follower(api, clock, output, last)
    while True:
        try:
            await follower.listen(wanted, show)
            await follower.wait("")
        except CannotConnect as trouble:
            await follower.wait(f"cannot reach {trouble.url}: {trouble.reason}")
        except ApiProblem as problem:
            if not problem.temporary:
                raise
            await follower.wait(problem.detail or problem.title, problem.retry_after or 0.0)
        except ValueError as odd:
            raise ApiProblem(
                "UNEXPECTED_REPLY", "this is no stream of gpuherd", str(odd), status=502
            ) from odd
