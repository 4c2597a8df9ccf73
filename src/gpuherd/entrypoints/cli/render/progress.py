"""Three ways to watch: a view that moves on a terminal, plain lines for a log, nothing for --quiet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuherd.client.client_connection import Clock
from gpuherd.client.follow_instance import Until
from gpuherd.entrypoints.cli.render.output import Mode, Output, safe, shown
from gpuherd.entrypoints.cli.render.stages import (
    ProgressModel,
    SeenInstance,
    StageState,
    estimate,
    progress_model_for,
)
from gpuherd.entrypoints.cli.render.tables import foldable
from gpuherd.entrypoints.durations import format_duration

# How long a picture of the spinner lasts, and how often the whole is drawn anew.
FRAME_S = 0.25
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


class Watcher(Protocol):
    """Is told about every observation while an instance is followed."""

    def observe(self, seen: SeenInstance) -> None:
        """The server said this."""
        ...

    def unreachable(self, reason: str) -> None:
        """The server said nothing, or that it cannot say anything now."""
        ...

    @property
    def wants_log(self) -> bool:
        """Whether somebody sees what the cloud says while it boots."""
        ...

    def log_line(self, line: str) -> None:
        """The cloud said this; may be called from another thread."""
        ...


class SilentWatcher:
    """Watches without a word."""

    wants_log = False

    def observe(self, seen: SeenInstance) -> None:
        pass

    def unreachable(self, reason: str) -> None:
        pass

    def log_line(self, line: str) -> None:
        pass


class PlainLines:
    """One line on stderr for each change."""

    # A pull has hundreds of lines.
    wants_log = False

    def __init__(self, output: Output, clock: Clock, until: Until, model: ProgressModel) -> None:
        self._output = output
        self._clock = clock
        self._until = until
        self._model = model
        self._last = ""

    def observe(self, seen: SeenInstance) -> None:
        fresh = self._model.observe(seen)
        for elapsed_s, label in fresh[:-1]:
            self._say(label, elapsed_s)
        it = seen.instance
        words = (self._model.label(seen), " · ".join(seen.facts), it.status_reason, STALE if it.stale else "")
        line = "  ".join(word for word in words if word)
        elapsed_s = fresh[-1][0] if fresh else self._model.total_s()
        self._say(line, elapsed_s, estimate(seen, self._until, self._clock))

    def unreachable(self, reason: str) -> None:
        self._say(_outage(reason), self._model.total_s())

    def log_line(self, line: str) -> None:
        pass

    def _say(self, line: str, elapsed_s: float, aside: str = "") -> None:
        # The aside changes all the time: that alone is not worth a line.
        if line != self._last:
            self._last = line
            self._output.note(
                f"{format_duration(elapsed_s):>11}  {safe(line)}" + (f"  ({aside})" if aside else "")
            )


class LiveView:
    """One line a stage or phase, redrawn in place, with times that run."""

    wants_log = True

    def __init__(self, output: Output, clock: Clock, until: Until, model: ProgressModel) -> None:
        self._output = output
        self._clock = clock
        self._until = until
        self._model = model
        self._seen: SeenInstance | None = None
        self._outage: str | None = None
        self._log_line = ""
        self._live = Live(
            console=output.out,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._draw,
        )

    def observe(self, seen: SeenInstance) -> None:
        self._model.observe(seen)
        self._seen = seen
        self._outage = None
        self._live.refresh()

    def unreachable(self, reason: str) -> None:
        self._outage = reason
        self._live.refresh()

    def log_line(self, line: str) -> None:
        # Drawn with the next tick.
        self._log_line = line

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Keep the picture on the screen and its times running."""
        ended = threading.Event()
        ticking = threading.Thread(target=self._tick, args=(ended,), daemon=True)
        with self._live:
            ticking.start()
            try:
                yield
            finally:
                # What was never accepted leaves no picture behind: the error says it all.
                self._live.transient = self._seen is None
                ended.set()
                ticking.join()

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(REFRESH_S):
            self._live.refresh()

    def _draw(self) -> Group:
        seen = self._seen
        parts: list[Table | Text] = [] if seen is None else list(_heading(seen))
        parts.append(self._stages())
        if seen is not None and seen.instance.status_reason:
            is_over = seen.outcome(self._until) is False
            parts.append(self._reason(seen.instance.status_reason, "red" if is_over else "dim"))
        if seen is not None and self._log_line and not seen.instance.usable:
            parts.append(shown(self._log_line, "dim"))
        if self._outage is not None:
            parts.append(shown(_outage(self._outage), "yellow"))
        elif seen is not None and seen.instance.stale:
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
        for line in self._model.lines(self._seen):
            mark, style = self._mark(line.mark)
            took = "" if line.took_s is None else format_duration(line.took_s)
            grid.add_row(Text(mark, style), shown(line.label, style), took, line.remark)
        return grid

    def _mark(self, mark: StageState) -> tuple[str, str]:
        unicode = self._output.unicode
        if mark is StageState.UNDER_WAY:
            frames = _SPINNER if unicode else _ASCII_SPINNER
            return frames[int(self._clock.monotonic() / FRAME_S) % len(frames)], "cyan"
        full, ascii_, style = _MARKS[mark]
        return full if unicode else ascii_, style


@contextmanager
def watcher_for(
    output: Output, clock: Clock, until: Until = "ready", *, ordered: bool = False
) -> Iterator[Watcher]:
    """Watch in the way that suits where the output goes; `ordered`: an operation is being followed."""
    model = progress_model_for(until, clock, ordered=ordered)
    if output.mode is Mode.IDS:
        yield SilentWatcher()
    elif output.for_people and output.out.is_interactive:
        view = LiveView(output, clock, until, model)
        with view.moving():
            yield view
    else:
        yield PlainLines(output, clock, until, model)


def _heading(seen: SeenInstance) -> Iterator[Text]:
    it = seen.instance
    title = shown(it.name, "bold")
    yield title if it.name == it.id else title.append(f"  {safe(it.id)}", "dim")
    if seen.facts:
        yield shown(" · ".join(seen.facts))


def _outage(reason: str) -> str:
    return f"{UNREACHABLE} ({reason})" if reason else UNREACHABLE
