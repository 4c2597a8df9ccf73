"""Instance leases that report to a tracer what they have saved. Nothing here needs OpenTelemetry."""

from __future__ import annotations

import contextlib
from datetime import datetime

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.trace_spans import (
    INSTANCE_ID,
    EndedSpan,
    spans_of_change,
    spans_of_operations,
    trace_of,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import Change, InstanceLeases, LeasedInstance
from gpuherd.ports.telemetry_port import Tracer

BOOT_PHASES = (Phase.PULLING, Phase.STARTING)


# At most this many boots are followed at once. Each other boot gets one span for the whole.
BOOTS_MAX = 10_000


class TracedLeases:
    """Wraps any `InstanceLeases`, and records the waits, boots and ends that are saved as spans.

    Only saved changes are recorded, so a pass that has lost its lease records nothing.
    """

    def __init__(self, instance_leases: InstanceLeases, tracer: Tracer, clock: Clock) -> None:
        self._instance_leases = instance_leases
        self._tracer = tracer
        self._clock = clock
        # The phase of each boot, and since when it lasts.
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
        # The change is saved. A broken span must not make the save look failed.
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
        """Note the phase of a boot, and record the phase before it as a span."""
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
    """Record the operations that a saved change has ended."""
    for it in (change, *change.also):
        for span in spans_of_operations(it.instance, it.operations):
            tracer.record(span)


def _boot(it: Instance, phase: Phase | None, begun: datetime, ended: datetime) -> EndedSpan:
    # Without a phase, this process has seen only the end of the boot.
    name = "boot" if phase is None else f"boot: {phase.value}"
    return EndedSpan(name, begun, ended, trace_of(it), is_single=True, attributes={INSTANCE_ID: it.id})
