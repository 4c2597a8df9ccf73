"""Shows the progress of a rental or an operation: a live view, plain lines, and the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuherd import client as api
from gpuherd.entrypoints.cli.cli_errors import detail_of
from gpuherd.entrypoints.cli.cli_output import LastLine, Mode, Output, Row, foldable, pairs, safe, shown
from gpuherd.entrypoints.cli.command_client import WaitEnded, as_row, broken_off, open_client
from gpuherd.entrypoints.cli.instance_facts import Until, endpoint_lines, facts_of, wait_command
from gpuherd.entrypoints.cli.rental_stages import (
    OperationProgress,
    Progress,
    ProgressModel,
    RentalProgress,
    StageState,
    estimate,
)
from gpuherd.entrypoints.cli.server_connection import ServerConnection
from gpuherd.entrypoints.durations import format_duration

# The duration of a spinner frame, and the interval of redraws.
FRAME_S = 0.25
REFRESH_S = 0.25
REASON_LINES = 3
LOG_LINE_CHARS_MAX = 200
# The wait while there is no machine, or no address of its log.
LOG_RETRY_S = 2.0
UNREACHABLE = "server not reachable, retrying"
STALE = "the cloud cannot be asked now; this is the last known state"
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_SPINNER = "|/-\\"

# Notifies the view that the server did not answer, and why.
OnLost = Callable[[str], None]
# The marks in Unicode and ASCII, and the style.
_MARKS = {
    StageState.DONE: ("✓", "+", "green"),
    StageState.AHEAD: ("·", ".", "dim"),
    StageState.FAILED: ("✗", "x", "red"),
}

Begin = Callable[[OnLost], Progress]


class InstanceFollower:
    """Follows the instance that `begin` finds or creates, shows its progress, and prints its end.

    `ordered` means that an operation is followed. `unanswered` is the farewell before `begin` has returned.
    """

    def __init__(
        self,
        server: ServerConnection,
        output: Output,
        timeout_s: float,
        *,
        until: Until = "ready",
        ordered: bool = False,
        unanswered: str = "",
    ) -> None:
        self.deadline = output.clock.monotonic() + timeout_s
        self._server = server
        self._output = output
        self._until = until
        self._ordered = ordered
        self._unanswered = unanswered
        self._instance: Row | None = None

    def follow(self, begin: Begin) -> Row:
        """Return the instance at the end, or raise why it failed. Print the last state either way."""
        clock = self._output.clock
        try:
            with _progress_view(self._output, self._until, ordered=self._ordered) as view:
                progress = begin(view.lost)
                self._instance = progress.instance
                boots = self._until == "ready" and not progress.instance.get("usable")
                with open_client(self._server, clock) as client:
                    log = (
                        _boot_log(client, progress.instance, view)
                        if boots and view.wants_log
                        else nullcontext()
                    )
                    with log:
                        left_s = self.deadline - clock.monotonic()
                        ended = _follow(client, progress, self._until, left_s, view)
        except WaitEnded as end:
            self._print(end.instance)
            raise end.error from end
        self._print(ended)
        return ended

    def farewell(self) -> str:
        """Return how to continue after Ctrl-C."""
        if self._instance is None:
            return self._unanswered
        again = wait_command(self._instance, self._until)
        return f"still working in the background; follow it with: {again}"

    def _print(self, instance: Row) -> None:
        if not self._output.for_people:
            self._output.answer(instance, str(instance["id"]))
        elif self._until == "ready" and instance.get("usable") and (ways := endpoint_lines(instance)):
            self._output.show(pairs(ways))


class ProgressView(Protocol):
    """Shows the progress of a followed instance."""

    # True if the view shows the cloud's log while a machine boots.
    wants_log: bool

    def show(self, progress: Progress) -> None:
        """Show what the server reports now."""
        ...

    def lost(self, reason: str) -> None:
        """Show that the server does not answer."""
        ...

    def log_line(self, line: str) -> None:
        """Show a line of the cloud's log; another thread may call this."""
        ...


class PlainLines:
    """Prints one line on stderr for each change, or nothing at all."""

    # A pull has hundreds of lines.
    wants_log = False

    def __init__(self, output: Output, until: Until, model: ProgressModel) -> None:
        self._output = output
        self._until = until
        self._model = model
        self._last = ""

    def show(self, progress: Progress) -> None:
        fresh = self._model.observe(progress)
        for elapsed_s, label in fresh[:-1]:
            self._print(label, elapsed_s)
        instance = progress.instance
        stale = STALE if instance.get("stale") else ""
        facts = " · ".join(facts_of(instance))
        words = (self._model.label(progress), facts, instance.get("statusReason"), stale)
        elapsed_s = fresh[-1][0] if fresh else self._model.total_s()
        aside = estimate(progress, self._until, self._output.clock)
        self._print("  ".join(str(word) for word in words if word), elapsed_s, aside)

    def lost(self, reason: str) -> None:
        self._print(_outage(reason), self._model.total_s())

    def log_line(self, line: str) -> None:
        pass

    def _print(self, line: str, elapsed_s: float, aside: str = "") -> None:
        # The aside changes all the time; that alone is not worth a line.
        if line == self._last or self._output.mode is Mode.IDS:
            return
        self._last = line
        remark = f"  ({aside})" if aside else ""
        self._output.note(f"{format_duration(elapsed_s):>11}  {safe(line)}{remark}")


class LiveView:
    """Shows one line per stage or phase, redrawn in place, with running times."""

    wants_log = True

    def __init__(self, output: Output, until: Until, model: ProgressModel) -> None:
        self._output = output
        self._until = until
        self._model = model
        self._progress: Progress | None = None
        self._outage: str | None = None
        self._log_line = ""
        self._live = Live(
            console=output.out,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._draw,
        )

    def show(self, progress: Progress) -> None:
        self._model.observe(progress)
        self._progress = progress
        self._outage = None
        self._live.refresh()

    def lost(self, reason: str) -> None:
        self._outage = reason
        self._live.refresh()

    def log_line(self, line: str) -> None:
        # The next tick draws the line.
        self._log_line = line

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Keep the view on the screen and its times running."""
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(REFRESH_S):
                self._live.refresh()

        ticking = threading.Thread(target=tick, daemon=True)
        with self._live:
            ticking.start()
            try:
                yield
            finally:
                # A rejected order leaves no view behind: the error says it all.
                self._live.transient = self._progress is None
                ended.set()
                ticking.join()

    def _draw(self) -> Group:
        progress = self._progress
        if progress is None:
            parts: list[Table | Text] = [self._stages()]
        else:
            instance = progress.instance
            parts = [*_heading(instance), self._stages()]
            if reason := instance.get("statusReason"):
                is_over = progress.outcome(self._until) is False
                parts.append(self._reason(str(reason), "red" if is_over else "dim"))
            if self._log_line and not instance.get("usable"):
                parts.append(shown(self._log_line, "dim"))
        if self._outage is not None:
            parts.append(shown(_outage(self._outage), "yellow"))
        elif progress is not None and progress.instance.get("stale"):
            parts.append(shown(STALE, "yellow"))
        return Group(*parts)

    def _reason(self, words: str, style: str) -> Text:
        """Return the reason in a few lines; the end of the sentence often matters most."""
        room = REASON_LINES * self._output.out.width
        return foldable(words if len(words) <= room else words[: room - 1] + "…", style)

    def _stages(self) -> Table:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_column(no_wrap=True, overflow="ellipsis", style="dim")
        for line in self._model.lines(self._progress):
            mark, style = self._mark(line.mark)
            took = "" if line.took_s is None else format_duration(line.took_s)
            grid.add_row(Text(mark, style), shown(line.label, style), took, line.remark)
        return grid

    def _mark(self, mark: StageState) -> tuple[str, str]:
        unicode = self._output.unicode
        if mark is StageState.UNDER_WAY:
            frames = _SPINNER if unicode else _ASCII_SPINNER
            return frames[int(self._output.clock.monotonic() / FRAME_S) % len(frames)], "cyan"
        full, ascii_, style = _MARKS[mark]
        return full if unicode else ascii_, style


@contextmanager
def _progress_view(output: Output, until: Until, *, ordered: bool) -> Iterator[ProgressView]:
    """Return the view for this output."""
    is_rental = until == "ready" and not ordered
    model: ProgressModel = (
        RentalProgress(output.clock) if is_rental else OperationProgress(output.clock, until)
    )
    if output.for_people and output.out.is_interactive:
        view = LiveView(output, until, model)
        with view.moving():
            yield view
    else:
        yield PlainLines(output, until, model)


def _heading(instance: Row) -> Iterator[Text]:
    title = shown(instance["name"], "bold")
    same = instance["name"] == instance["id"]
    yield title if same else title.append(f"  {safe(instance['id'])}", "dim")
    if facts := facts_of(instance):
        yield shown(" · ".join(facts))


def _outage(reason: str) -> str:
    return f"{UNREACHABLE} ({reason})" if reason else UNREACHABLE


def _follow(client: api.Gpuherd, progress: Progress, until: Until, left_s: float, view: ProgressView) -> Row:
    def on_answer(instance: api.Instance, operation: api.Operation | None) -> None:
        view.show(Progress(as_row(instance), None if operation is None else as_row(operation)))

    def on_trouble(error: api.GpuherdError) -> None:
        view.lost(detail_of(broken_off(error)))

    operation = None if progress.operation is None else api.Operation.of(progress.operation)
    ended = client.instances.follow(
        api.Instance.of(progress.instance),
        until,
        left_s,
        operation=operation,
        on_answer=on_answer,
        on_trouble=on_trouble,
    )
    return as_row(ended)


@contextmanager
def _boot_log(client: api.Gpuherd, instance: Row, view: ProgressView) -> Iterator[None]:
    """Show the last line of the cloud's log while the block lasts."""
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            last = LastLine(LOG_LINE_CHARS_MAX)
            try:
                for chunk in client.instances.logs(str(instance["id"]), source="system", follow=True):
                    if ended.is_set():
                        return
                    if line := last.feed(chunk):
                        view.log_line(line)
            except (api.GpuherdError, OSError):
                # The wait itself reports what is wrong.
                pass
            ended.wait(LOG_RETRY_S)

    # No thread joins this one: it may hang in a read, and the end of the command ends it.
    threading.Thread(target=read, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
