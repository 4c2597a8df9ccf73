"""Traces in the form of OpenTelemetry.

Spans are made when they have ended, from times and ids that are known by then. So there is no context to
keep: whoever knows the id of an instance adds to its trace.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from datetime import datetime
from types import TracebackType
from typing import Self

from gpuherd.adapters.tracing.queued_span import (
    Place,
    QueuedSpan,
    SpanRef,
    place_in,
)
from gpuherd.adapters.tracing.span_queue import SpanQueue
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.trace_spans import (
    INSTANCE_ID,
    Attribute,
    EndedSpan,
    SpanKind,
    Trace,
    queued_since,
    spans_of_change,
    spans_of_operations,
    trace_id_of,
    trace_of,
)
from gpuherd.ports.clock_port import Clock, Random
from gpuherd.ports.instance_port import Change, InstanceLeases, LeasedInstance
from gpuherd.ports.telemetry_port import Tracer

# A turn that makes more calls than this is told without the rest of them.
PARTS_MAX = 100


STEPS = "gpuherd.steps"
_64_BITS = (1 << 64) - 1


# Of version 00, which later ones have to begin with: trace, span, flags.
_TRACEPARENT = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)


_SAMPLED = 1


class OtelTracer:
    """The port `Tracer`."""

    is_on = True

    def __init__(self, queue: SpanQueue, clock: Clock, rng: Random, *, ratio: float = 1.0) -> None:
        self._queue = queue
        self._clock = clock
        self._rng = rng
        # As the SDK's own sampler does it: by bits of the trace's id, so all processes decide alike.
        self._bound = round(ratio * (1 << 64))
        self._keeps_all = self._bound > _64_BITS
        self._open: ContextVar[_Open | None] = ContextVar("open_span", default=None)

    def record(self, span: EndedSpan) -> None:
        opened = self._open.get()
        if span.trace is None:
            if opened is not None:
                opened.add(span)
            return
        # guard: no error of a tracer reaches the work
        try:
            self._record(span, span.trace, None if opened is None else opened.caller)
        except Exception:  # whatever is wrong with a span, the work that it tells of was done
            self._queue.count_dropped()

    def _record(self, span: EndedSpan, trace: Trace, caller: SpanRef | None) -> None:
        if trace.subject is None:
            if (place := self._place(trace, caller)) is not None:
                self._queue.put(QueuedSpan(span, self._new_id(), place))
        elif self._keeps(trace):
            self._queue.put(QueuedSpan(span, self._new_id(), None, caller))

    def turn(self, name: str, *, is_kept: bool = False) -> AbstractContextManager[_Open]:
        return _Open(self, name, None, is_kept=is_kept, is_bound=False)

    def about(self, instance: Instance) -> None:
        if (opened := self._open.get()) is not None:
            try:
                opened.bind(instance)
            except Exception:  # as above
                self._queue.count_dropped()

    def step(self, name: str) -> None:
        if (opened := self._open.get()) is not None:
            opened.steps.append(name)

    def changed(self) -> None:
        if (opened := self._open.get()) is not None:
            opened.is_kept = True

    def work(self, name: str, trace: Trace) -> AbstractContextManager[_Open]:
        return _Open(self, name, self._place(trace), is_kept=True)

    def request(self, traceparent: str) -> AbstractContextManager[_Open]:
        found = _caller(traceparent)
        if found is None:
            return _Open(self, "request", None, is_kept=False)
        caller, is_sampled = found
        place = Place(caller.trace_id, caller.span_id) if is_sampled else None
        return _Open(self, "request", place, is_kept=True, kind=SpanKind.SERVER, caller=caller)

    def counts(self) -> Mapping[str, int]:
        return self._queue.counts()

    def _keeps(self, trace: Trace, trace_id: int = 0) -> bool:
        """Tell whether a trace is kept: a rental is with all that comes of it, or nothing of it is."""
        if self._keeps_all:
            return True
        subject = trace.origin or trace.subject
        return (trace_id if subject is None else trace_id_of(subject)) & _64_BITS < self._bound

    def _place(self, trace: Trace, caller: SpanRef | None = None) -> Place | None:
        """Return where a span hangs; None if its trace is not kept."""
        trace_id = self._rng.getrandbits(128) if trace.subject is None else trace_id_of(trace.subject)
        return place_in(trace, trace_id, caller) if self._keeps(trace, trace_id) else None

    def _new_id(self) -> int:
        return self._rng.getrandbits(64) or 1


class _Open:
    """A span that goes on, with its parts: they are told with it, or not at all."""

    __slots__ = (
        *("_name", "_attributes", "_begun", "_is_bound", "_kind", "_parts", "_place", "_queued_since"),
        *("_token", "_tracer", "caller", "is_kept", "steps"),
    )

    def __init__(
        self,
        tracer: OtelTracer,
        name: str,
        place: Place | None,
        *,
        is_kept: bool,
        is_bound: bool = True,
        kind: SpanKind = SpanKind.INTERNAL,
        caller: SpanRef | None = None,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._place = place
        # Only a turn learns later whom it is about.
        self._is_bound = is_bound
        self._kind = kind
        self.caller = caller
        self.is_kept = is_kept
        self.steps: list[str] = []
        self._attributes: dict[str, Attribute] = {}
        self._parts: list[EndedSpan] = []
        self._queued_since: datetime | None = None
        self._begun = tracer._clock.now()
        self._token: Token[_Open | None] | None = None

    def note(self, name: str, value: Attribute) -> None:
        self._attributes[name] = value

    def rename(self, name: str) -> None:
        self._name = name

    def forget(self) -> None:
        self._place = None

    def add(self, part: EndedSpan) -> None:
        if len(self._parts) < PARTS_MAX:
            self._parts.append(part)

    def bind(self, instance: Instance) -> None:
        """Say whom it is about; who was named first, it is about."""
        if not self._is_bound:
            self._is_bound = True
            self._place = self._tracer._place(trace_of(instance))
            self._queued_since = queued_since(instance)
            self._attributes[INSTANCE_ID] = instance.id

    def __enter__(self) -> Self:
        self._token = self._tracer._open.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        tracer, place = self._tracer, self._place
        if self._token is not None:
            tracer._open.reset(self._token)
        if place is None or not (self.is_kept or error is not None):
            return
        try:
            self._write(tracer, place, error)
        except Exception:  # whatever is wrong with a span, the work that it tells of was done
            tracer._queue.count_dropped()

    def _write(self, tracer: OtelTracer, place: Place, error: BaseException | None) -> None:
        if self.steps:
            self._attributes[STEPS] = " ".join(self.steps[:PARTS_MAX])
        if error is not None:
            self._attributes["error.type"] = type(error).__name__
        put, new_id = tracer._queue.put, tracer._new_id
        ended, own_id = tracer._clock.now(), new_id()
        if self._queued_since is not None:
            put(QueuedSpan(EndedSpan("wait: queue", self._queued_since, self._begun), new_id(), place))
        own = EndedSpan(
            self._name,
            self._begun,
            ended,
            kind=self._kind,
            failed=error is not None,
            attributes=self._attributes,
        )
        put(QueuedSpan(own, own_id, place))
        below = Place(place.trace_id, own_id)
        for part in self._parts:
            put(QueuedSpan(part, new_id(), below))


def _caller(traceparent: str) -> tuple[SpanRef, bool] | None:
    """Return the span of the caller that a `traceparent` names, if it is one, and whether it is kept."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None or traceparent.startswith("ff"):
        return None
    trace_id, span_id, flags = (int(it, 16) for it in found.groups())
    return SpanRef(trace_id, span_id), bool(flags & _SAMPLED)


BOOT_PHASES = (Phase.PULLING, Phase.STARTING)


# So many boots at once are followed; of the others only the whole is told.
BOOTS_MAX = 10_000


class TracedLeases:
    """Any `InstanceLeases`, with the waits, boots and ends that they save told as spans.

    Only what was saved is told, so a pass that has lost its lease tells nothing.
    """

    def __init__(self, instance_leases: InstanceLeases, tracer: Tracer, clock: Clock) -> None:
        self._instance_leases = instance_leases
        self._tracer = tracer
        self._clock = clock
        # How far those are that boot, and since when.
        self._boots: dict[str, tuple[Phase, datetime]] = {}

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        leased = await self._instance_leases.acquire(instance_id, job_id)
        if leased is not None:
            self._tracer.about(leased.instance)
            # guard: an instance is leased whatever is wrong with its spans
            with contextlib.suppress(Exception):
                self._follow_boot(leased, leased.instance)
        return leased

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        saved = await self._instance_leases.save(leased, change)
        # It is written: nothing that is wrong with a span may make it look as if it were not.
        # guard: what is saved is saved whatever is wrong with its spans
        with contextlib.suppress(Exception):
            self._tell(leased.instance, change, saved)
        return saved

    def _tell(self, before: Instance, change: Change, saved: LeasedInstance) -> None:
        if change.events or change.attempt is not None:
            self._tracer.changed()
        if before.status is Status.STARTING and change.instance.status is not Status.STARTING:
            self._end_boot(before)
        self._follow_boot(saved, saved.instance)
        for span in spans_of_change(before, change.instance, self._clock.now()):
            self._tracer.record(span)
        trace_operations(self._tracer, change)

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        return await self._instance_leases.refresh(leased)

    async def release(self, leased: LeasedInstance) -> None:
        await self._instance_leases.release(leased)

    def _follow_boot(self, leased: LeasedInstance, it: Instance) -> None:
        """Take note of how far a boot is; a part of it that is over is told."""
        seen = next((o for o in leased.observations if o.machine.cloud_id == it.cloud_id), None)
        if it.status is not Status.STARTING or seen is None or seen.machine.phase not in BOOT_PHASES:
            return
        phase, known = seen.machine.phase, self._boots.get(it.id)
        if known is None and len(self._boots) < BOOTS_MAX:
            self._boots[it.id] = (phase, max(seen.changed_at, it.status_since or seen.changed_at))
        elif known is not None and known[0] is not phase:
            self._boots[it.id] = (phase, seen.changed_at)
            self._tracer.record(_boot(it, known[0], known[1], seen.changed_at))

    def _end_boot(self, it: Instance) -> None:
        phase, since = self._boots.pop(it.id, (None, it.status_since))
        if since is not None:
            self._tracer.record(_boot(it, phase, since, self._clock.now()))


def trace_operations(tracer: Tracer, change: Change) -> None:
    """Tell of the operations that a saved change has ended."""
    for it in (change, *change.also):
        for span in spans_of_operations(it.instance, it.operations):
            tracer.record(span)


def _boot(it: Instance, phase: Phase | None, begun: datetime, ended: datetime) -> EndedSpan:
    # Of a boot that an earlier process has watched, only the end is known.
    name = "boot" if phase is None else f"boot: {phase.value}"
    return EndedSpan(name, begun, ended, trace_of(it), is_single=True, attributes={INSTANCE_ID: it.id})
