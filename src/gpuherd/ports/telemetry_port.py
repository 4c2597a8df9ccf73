"""Metrics and traces."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.trace_spans import Attribute, EndedSpan, Trace


class Meter(Protocol):
    """Takes note of work that has ended. It never waits and never raises; each call costs microseconds.

    Every word is one of a few that are known beforehand: never an id, a path or a name that a user chose.
    """

    def request(self, route: str, method: str, status: int | None, seconds: float) -> None:
        """One HTTP request; `route` is its template, `status` None if nobody waited for the answer."""
        ...

    def upstream_call(self, endpoint: str, outcome: str, seconds: float) -> None:
        """One try of one call to the cloud."""
        ...

    def turn(self, kind: str, outcome: str, seconds: float) -> None:
        """One run of one job."""
        ...

    def webhook(self, outcome: str, seconds: float) -> None:
        """One try to deliver a webhook."""
        ...

    def status_left(self, status: str, seconds: float) -> None:
        """An instance has another status now; it was in this one for `seconds`."""
        ...

    def attempt(self, state: str) -> None:
        """A create call has come into this state."""
        ...

    def replacement(self, outcome: str, gap_s: float | None = None) -> None:
        """A replacement has ended; where it was handed over, nothing could be used for `gap_s`."""
        ...


class NullMeter:
    """Takes no note of anything: for tests, and where nobody keeps watch."""

    def request(self, route: str, method: str, status: int | None, seconds: float) -> None: ...

    def upstream_call(self, endpoint: str, outcome: str, seconds: float) -> None: ...

    def turn(self, kind: str, outcome: str, seconds: float) -> None: ...

    def webhook(self, outcome: str, seconds: float) -> None: ...

    def status_left(self, status: str, seconds: float) -> None: ...

    def attempt(self, state: str) -> None: ...

    def replacement(self, outcome: str, gap_s: float | None = None) -> None: ...


class MetricsPage(Protocol):
    """All that was counted and timed, and how things stand now, in the words of a monitoring system."""

    async def render(self, *, money: bool = True) -> tuple[bytes, str]:
        """Return the page and its content type. What cannot be read just now is left out.

        Without `money` nothing on it tells what anything costs, or what a budget is called.
        """
        ...


SENT, DROPPED = "sent", "dropped"


class OngoingSpan(Protocol):
    """Work that goes on: what is recorded meanwhile, in the same task, is a part of it."""

    def note(self, name: str, value: Attribute) -> None:
        """Set an attribute."""
        ...

    def rename(self, name: str) -> None:
        """Call it by another name: its own is sometimes known at its end."""
        ...

    def forget(self) -> None:
        """Do not keep it after all."""
        ...


class Tracer(Protocol):
    """Takes note of work, as spans. It never waits and never raises.

    Names and attributes are ids and words of our own: never what a user or the cloud has written.
    """

    @property
    def is_on(self) -> bool:
        """Whether anybody keeps traces: ask before you gather what a span needs."""
        ...

    def record(self, span: EndedSpan) -> None:
        """Take note of a span that has ended. One without a trace, where nothing is open, is not kept."""
        ...

    def turn(self, name: str, *, is_kept: bool = False) -> AbstractContextManager[OngoingSpan]:
        """Open a turn of a job about an instance. It is kept if it changed something, or `is_kept` anyway."""
        ...

    def about(self, instance: Instance) -> None:
        """Say whom the open turn is about."""
        ...

    def step(self, name: str) -> None:
        """Say what the open turn does."""
        ...

    def changed(self) -> None:
        """Say that the open turn has changed something."""
        ...

    def work(self, name: str, trace: Trace) -> AbstractContextManager[OngoingSpan]:
        """Open a span of a trace."""
        ...

    def request(self, traceparent: str) -> AbstractContextManager[OngoingSpan]:
        """Open a request of a caller that keeps traces: a span of its trace if it keeps this one.

        What begins meanwhile in a trace of its own is linked to it.
        """
        ...

    def counts(self) -> Mapping[str, int]:
        """Return how many spans were sent, and how many were dropped."""
        ...


class _NullSpan:
    """Stands for any open span where nobody keeps traces; one for all."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def note(self, name: str, value: Attribute) -> None: ...

    def rename(self, name: str) -> None: ...

    def forget(self) -> None: ...


_NULL_SPAN = _NullSpan()
NOTHING = {SENT: 0, DROPPED: 0}


class NullTracer:
    """Keeps no traces: nothing is imported, allocated or counted for it."""

    is_on = False

    def record(self, span: EndedSpan) -> None: ...

    def turn(self, name: str, *, is_kept: bool = False) -> AbstractContextManager[OngoingSpan]:
        return _NULL_SPAN

    def about(self, instance: Instance) -> None: ...

    def step(self, name: str) -> None: ...

    def changed(self) -> None: ...

    def work(self, name: str, trace: Trace) -> AbstractContextManager[OngoingSpan]:
        return _NULL_SPAN

    def request(self, traceparent: str) -> AbstractContextManager[OngoingSpan]:
        return _NULL_SPAN

    def counts(self) -> Mapping[str, int]:
        return NOTHING
