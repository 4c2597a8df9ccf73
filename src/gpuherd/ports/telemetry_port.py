"""Metrics and traces."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.trace_spans import Attribute, EndedSpan, Trace


class Meter(Protocol):
    """Counts finished work. It never waits and never raises; each call costs microseconds.

    Every label is one of a few fixed words: never an id, a path or a name that a user chose.
    """

    def request(self, route: str, method: str, status: int | None, seconds: float) -> None:
        """Count one HTTP request; `route` is its template, `status` None if the client went away."""
        ...

    def upstream_call(self, endpoint: str, outcome: str, seconds: float) -> None:
        """Count one try of one call to the cloud."""
        ...

    def turn(self, kind: str, outcome: str, seconds: float) -> None:
        """Count one run of one job."""
        ...

    def webhook(self, outcome: str, seconds: float) -> None:
        """Count one try to deliver a webhook."""
        ...

    def status_left(self, status: str, seconds: float) -> None:
        """Count a change of status; the instance was in `status` for `seconds`."""
        ...

    def attempt(self, state: str) -> None:
        """Count a create call that has reached this state."""
        ...

    def replacement(self, outcome: str, gap_s: float | None = None) -> None:
        """Count a finished replacement. After a handover, no instance was usable for `gap_s`."""
        ...


class NullMeter:
    """Counts nothing: for tests, and if metrics are off."""

    def request(self, route: str, method: str, status: int | None, seconds: float) -> None: ...

    def upstream_call(self, endpoint: str, outcome: str, seconds: float) -> None: ...

    def turn(self, kind: str, outcome: str, seconds: float) -> None: ...

    def webhook(self, outcome: str, seconds: float) -> None: ...

    def status_left(self, status: str, seconds: float) -> None: ...

    def attempt(self, state: str) -> None: ...

    def replacement(self, outcome: str, gap_s: float | None = None) -> None: ...


class MetricsPage(Protocol):
    """All metrics and present values, in the format of a monitoring system."""

    async def render(self, *, money: bool = True) -> tuple[bytes, str]:
        """Return the page and its content type. Values that cannot be read now are left out.

        Without `money`, no value shows a cost or the name of a budget.
        """
        ...


SENT, DROPPED = "sent", "dropped"


class OngoingSpan(Protocol):
    """Unfinished work. What the same task records meanwhile becomes a part of it."""

    def note(self, name: str, value: Attribute) -> None:
        """Set an attribute."""
        ...

    def rename(self, name: str) -> None:
        """Change its name: some names are only known at the end."""
        ...

    def forget(self) -> None:
        """Drop this span."""
        ...


class Tracer(Protocol):
    """Records work as spans. It never waits and never raises.

    Names and attributes are ids and our own words: never text of a user or of the cloud.
    """

    @property
    def is_on(self) -> bool:
        """True if traces are kept. Check this before collecting what a span needs."""
        ...

    def record(self, span: EndedSpan) -> None:
        """Record a finished span. A span without a trace is dropped if no span is open."""
        ...

    def turn(self, name: str, *, is_kept: bool = False) -> AbstractContextManager[OngoingSpan]:
        """Open the pass of a job on an instance. It is kept if it changes something, or if `is_kept`."""
        ...

    def about(self, instance: Instance) -> None:
        """Set the instance of the open pass."""
        ...

    def step(self, name: str) -> None:
        """Record a step of the open pass."""
        ...

    def changed(self) -> None:
        """Record that the open pass has changed something."""
        ...

    def work(self, name: str, trace: Trace) -> AbstractContextManager[OngoingSpan]:
        """Open a span of a trace."""
        ...

    def request(self, traceparent: str) -> AbstractContextManager[OngoingSpan]:
        """Open a request of a caller that keeps traces: a span of its trace if it keeps this one.

        Traces that begin meanwhile are linked to it.
        """
        ...

    def counts(self) -> Mapping[str, int]:
        """Return how many spans were sent, and how many were dropped."""
        ...


class _NullSpan:
    """Stands for any open span if no traces are kept. One object serves all."""

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
