"""How much has gone over the wire, on one line of a terminal that is drawn a few times a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.status import Status

from gpuherd.client.client_connection import Clock
from gpuherd.entrypoints.cli.render.output import Output, safe

DRAW_INTERVAL_S = 0.2
UNITS = ("bytes", "kB", "MB", "GB", "TB")
STEP = 1000


def size_text(count: int) -> str:
    """Return a size as people say it: 12.3 MB."""
    amount = float(count)
    for unit in UNITS[:-1]:
        if amount < STEP:
            return f"{amount:.0f} {unit}" if unit == UNITS[0] else f"{amount:.1f} {unit}"
        amount /= STEP
    return f"{amount:.1f} {UNITS[-1]}"


class Transfer:
    """Is told how many bytes have passed, and shows it."""

    def __init__(self, clock: Clock, status: Status | None, what: str) -> None:
        self._clock = clock
        self._status = status
        self._what = what
        self._drawn_at = clock.monotonic()
        self.count = 0

    def tell(self, count: int) -> None:
        self.count = count
        now = self._clock.monotonic()
        if self._status is not None and now - self._drawn_at >= DRAW_INTERVAL_S:
            self._drawn_at = now
            self._status.update(f"{safe(self._what)}  {size_text(count)}")


@contextmanager
def transfer(output: Output, clock: Clock, what: str) -> Iterator[Transfer]:
    """Show a transfer while it goes on, where somebody looks."""
    if not output.err.is_interactive:
        yield Transfer(clock, None, what)
        return
    with output.err.status(safe(what)) as status:
        yield Transfer(clock, status, what)
