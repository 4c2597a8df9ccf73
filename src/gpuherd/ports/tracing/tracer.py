"""What is needed to tell a tracing system how one rental went, across all processes that had a part in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.tracing.span import Attribute, EndedSpan, Trace

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
