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
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.output import Mode, Output, safe, shown
from gpuherd.entrypoints.cli.timeline import LABELS, Stage, Timeline
from gpuherd.entrypoints.cli.times import lasting, remaining

REFRESH_S = 0.25
UNREACHABLE = "server not reachable, retrying"
STALE = "the cloud cannot be asked now; this is the last known state"

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_SPINNER = "|/-\\"


class Silent:
    """Watches without a word."""

    def saw(self, details: Details) -> None:
        pass

    def unreachable(self, reason: str) -> None:
        pass


class PlainLines:
    """One line on stderr for each change."""

    def __init__(self, output: Output, clock: Clock, timeline: Timeline) -> None:
        self._output = output
        self._clock = clock
        self._timeline = timeline
        self._last = ""

    def saw(self, details: Details) -> None:
        self._timeline.saw(details, monotonic=self._clock.monotonic(), now=self._clock.now())
        stale = STALE if details.raw.get("stale") is True else ""
        label = _label(self._timeline.stage, details)
        words = (label, " · ".join(details.facts), details.text("statusReason"), stale)
        self._say("  ".join(word for word in words if word), _estimate(details, self._clock))

    def unreachable(self, reason: str) -> None:
        self._say(_trouble(reason))

    def _say(self, line: str, aside: str = "") -> None:
        # The aside changes all the time: that alone is not worth a line.
        if line != self._last:
            self._last = line
            elapsed = lasting(self._timeline.total(monotonic=self._clock.monotonic()))
            self._output.note(f"{elapsed:>11}  {safe(line)}" + (f"  ({aside})" if aside else ""))


class LiveView:
    """One line a stage, redrawn in place, with times that run."""

    def __init__(self, output: Output, clock: Clock, timeline: Timeline) -> None:
        self._output = output
        self._clock = clock
        self._timeline = timeline
        self._details = Details({})
        self._trouble: str | None = None
        self._live = Live(
            console=output.out,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._draw,
        )

    def saw(self, details: Details) -> None:
        self._details = details
        self._trouble = None
        self._timeline.saw(details, monotonic=self._clock.monotonic(), now=self._clock.now())
        self._live.refresh()

    def unreachable(self, reason: str) -> None:
        self._trouble = reason
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
            parts.append(shown(reason, "red" if details.over else "dim"))
        if self._trouble is not None:
            parts.append(shown(_trouble(self._trouble), "yellow"))
        elif details.raw.get("stale") is True:
            parts.append(shown(STALE, "yellow"))
        return Group(*parts)

    def _stages(self) -> Table:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_column(no_wrap=True, overflow="ellipsis", style="dim")
        monotonic = self._clock.monotonic()
        for stage in Stage:
            mark, style = self._mark(stage, monotonic)
            took = self._timeline.took(stage, monotonic=monotonic)
            elapsed = "" if took is None or stage is Stage.READY else lasting(took)
            label = _label(stage, self._details) if stage is self._timeline.stage else LABELS[stage]
            grid.add_row(Text(mark, style), shown(label, style), elapsed, self._remark(stage, monotonic))
        return grid

    def _mark(self, stage: Stage, monotonic: float) -> tuple[str, str]:
        current = self._timeline.stage
        unicode = self._output.unicode
        if stage < current or (stage is current and self._details.usable):
            return ("✓" if unicode else "+"), "green"
        if stage > current:
            return ("·" if unicode else "."), "dim"
        if self._details.over:
            return ("✗" if unicode else "x"), "red"
        frames = _SPINNER if unicode else _ASCII_SPINNER
        return frames[int(monotonic / REFRESH_S) % len(frames)], "cyan"

    def _remark(self, stage: Stage, monotonic: float) -> str:
        if stage is not self._timeline.stage:
            return ""
        if self._details.usable:
            return f"in {lasting(self._timeline.total(monotonic=monotonic))}"
        return _estimate(self._details, self._clock)


AnyWatcher: TypeAlias = Silent | PlainLines | LiveView


@asynccontextmanager
async def watching(output: Output, clock: Clock) -> AsyncIterator[AnyWatcher]:
    """Watch in the way that suits where the output goes."""
    timeline = Timeline(clock.monotonic())
    if output.mode is Mode.IDS:
        yield Silent()
    elif output.for_people and output.out.is_interactive:
        view = LiveView(output, clock, timeline)
        async with view.moving():
            yield view
    else:
        yield PlainLines(output, clock, timeline)


def _label(stage: Stage, details: Details) -> str:
    """Say the stage, and the status too where it says more."""
    if details.over or (details.status and details.status not in ("creating", LABELS[stage])):
        return LABELS[stage] if details.usable else f"{LABELS[stage]} ({details.status})"
    return LABELS[stage]


def _estimate(details: Details, clock: Clock) -> str:
    estimate = details.time("estimatedReadyTime")
    if estimate is None or details.over or details.usable:
        return ""
    return remaining(estimate, clock.now())


def _trouble(reason: str) -> str:
    return f"{UNREACHABLE} ({reason})" if reason else UNREACHABLE
