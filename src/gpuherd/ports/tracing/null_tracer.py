"""The tracer where nobody keeps traces."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.tracing.span import Attribute, EndedSpan, Trace
from gpuherd.ports.tracing.tracer import DROPPED, SENT, OngoingSpan


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
