"""Three ways to watch: a view that moves on a terminal, plain lines for a log, nothing for --quiet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuherd.clock import Clock
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.output import Mode, Output, safe, shown
from gpuherd.entrypoints.cli.render.stages import ProgressModel, StageState, estimate, progress_model_for
from gpuherd.entrypoints.cli.render.tables import foldable
from gpuherd.entrypoints.cli.render.times import format_duration

REFRESH_S = 0.25
REASON_LINES = 3
UNREACHABLE = "server not reachable, retrying"
STALE = "the cloud cannot be asked now; this is the last known state"

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_SPINNER = "|/-\\"
# With more than ASCII, without, and the style.
_MARKS = {
    StageState.DONE: ("✓", "+", "green"),
    StageState.AHEAD: ("·", ".", "dim"),
    StageState.FAILED: ("✗", "x", "red"),
}


class SilentWatcher:
    """Watches without a word."""

    def observe(self, details: Details) -> None:
        pass

    def unreachable(self, reason: str) -> None:
        pass


class PlainLines:
    """One line on stderr for each change."""

    def __init__(self, output: Output, clock: Clock, what: WaitFor, model: ProgressModel) -> None:
        self._output = output
        self._clock = clock
        self._what = what
        self._model = model
        self._last = ""

    def observe(self, details: Details) -> None:
        fresh = self._model.observe(details)
        for elapsed_s, label in fresh[:-1]:
            self._say(label, elapsed_s)
        stale = STALE if details.raw.get("stale") is True else ""
        label = self._model.label(details)
        words = (label, " · ".join(details.facts), details.text("statusReason"), stale)
        line = "  ".join(word for word in words if word)
        elapsed_s = fresh[-1][0] if fresh else self._model.total_s()
        self._say(line, elapsed_s, estimate(details, self._what, self._clock))

    def unreachable(self, reason: str) -> None:
        self._say(_outage(reason), self._model.total_s())

    def _say(self, line: str, elapsed_s: float, aside: str = "") -> None:
        # The aside changes all the time: that alone is not worth a line.
        if line != self._last:
            self._last = line
            self._output.note(
                f"{format_duration(elapsed_s):>11}  {safe(line)}" + (f"  ({aside})" if aside else "")
            )


class LiveView:
    """One line a stage or phase, redrawn in place, with times that run."""

    def __init__(self, output: Output, clock: Clock, what: WaitFor, model: ProgressModel) -> None:
        self._output = output
        self._clock = clock
        self._what = what
        self._model = model
        self._details = Details({})
        self._outage: str | None = None
        self._live = Live(
            console=output.out,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._draw,
        )

    def observe(self, details: Details) -> None:
        self._details = details
        self._outage = None
        self._model.observe(details)
        self._live.refresh()

    def unreachable(self, reason: str) -> None:
        self._outage = reason
        self._live.refresh()

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Keep the picture on the screen and its times running."""
        with self._live:
            ticking = asyncio.create_task(self._tick())
            try:
                yield
            finally:
                # What was never accepted leaves no picture behind: the error says it all.
                self._live.transient = not self._details.id
                ticking.cancel()
                with suppress(asyncio.CancelledError):
                    await ticking

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_S)
            self._live.refresh()

    def _draw(self) -> Group:
        details = self._details
        parts: list[Table | Text] = []
        if details.id:
            title = shown(details.name, "bold")
            parts.append(
                title if details.name == details.id else title.append(f"  {safe(details.id)}", "dim")
            )
        if details.facts:
            parts.append(shown(" · ".join(details.facts)))
        parts.append(self._stages())
        if reason := details.text("statusReason"):
            parts.append(self._reason(reason, "red" if details.reached(self._what) is False else "dim"))
        if self._outage is not None:
            parts.append(shown(_outage(self._outage), "yellow"))
        elif details.raw.get("stale") is True:
            parts.append(shown(STALE, "yellow"))
        return Group(*parts)

    def _reason(self, words: str, style: str) -> Text:
        """Say what is waited for in a few lines: the end of the sentence often is what matters."""
        room = REASON_LINES * self._output.out.width
        text = foldable(words if len(words) <= room else words[: room - 1] + "…")
        text.style = style
        return text

    def _stages(self) -> Table:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_column(no_wrap=True, overflow="ellipsis", style="dim")
        for line in self._model.lines(self._details):
            mark, style = self._mark(line.mark)
            took = "" if line.took_s is None else format_duration(line.took_s)
            grid.add_row(Text(mark, style), shown(line.label, style), took, line.remark)
        return grid

    def _mark(self, mark: StageState) -> tuple[str, str]:
        unicode = self._output.unicode
        if mark is StageState.UNDER_WAY:
            frames = _SPINNER if unicode else _ASCII_SPINNER
            return frames[int(self._clock.monotonic() / REFRESH_S) % len(frames)], "cyan"
        full, ascii_, style = _MARKS[mark]
        return full if unicode else ascii_, style


AnyWatcher: TypeAlias = SilentWatcher | PlainLines | LiveView


@asynccontextmanager
async def watcher_for(
    output: Output, clock: Clock, what: WaitFor = WaitFor.READY, *, ordered: bool = False
) -> AsyncIterator[AnyWatcher]:
    """Watch in the way that suits where the output goes; `ordered`: an operation is being followed."""
    model = progress_model_for(what, clock, ordered=ordered)
    if output.mode is Mode.IDS:
        yield SilentWatcher()
    elif output.for_people and output.out.is_interactive:
        view = LiveView(output, clock, what, model)
        async with view.moving():
            yield view
    else:
        yield PlainLines(output, clock, what, model)


def _outage(reason: str) -> str:
    return f"{UNREACHABLE} ({reason})" if reason else UNREACHABLE
