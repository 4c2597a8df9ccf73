"""Leases that tell a tracer what they have saved: nothing that is not saved, and at no risk to what is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuherd.adapters import traced_leases
from gpuherd.adapters.traced_leases import TracedLeases
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import Status
from gpuherd.ports.instance_port import Change, LeasedInstance
from tests.adapters.tracing.exported import TracingProcess
from tests.support.builders import an_instance
from tests.support.fake_clock import FakeClock

BOOTING = an_instance(status=Status.STARTING)
READY = replace(BOOTING, status=Status.READY, ready_at=BOOTING.created_at)


class Leases:
    """Leases of one instance, which may be lost."""

    def __init__(self) -> None:
        self.is_lost = False
        self.saved: list[Change] = []

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        return LeasedInstance(BOOTING, (), (), (), "token")

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        if self.is_lost:
            raise StaleWrite("another process has it")
        self.saved.append(change)
        return replace(leased, instance=change.instance)

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        return leased

    async def release(self, leased: LeasedInstance) -> None: ...


@pytest.mark.parametrize("broken", ["spans_of_change", "trace_operations"])
async def test_what_is_saved_is_saved_whatever_is_wrong_with_its_spans(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    traces, inner = TracingProcess(clock), Leases()
    leases = TracedLeases(inner, traces.tracer, clock)
    monkeypatch.setattr(traced_leases, broken, fail)
    leased = await leases.acquire(BOOTING.id, None)
    assert leased is not None
    assert (await leases.save(leased, Change(READY))).instance == READY
    assert inner.saved == [Change(READY)]
    traces.close()


async def test_an_instance_is_leased_whatever_is_wrong_with_its_spans(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    traces = TracingProcess(clock)
    monkeypatch.setattr(TracedLeases, "_follow_boot", fail)
    assert await TracedLeases(Leases(), traces.tracer, clock).acquire(BOOTING.id, None) is not None
    traces.close()


async def test_what_was_not_saved_is_not_told(clock: FakeClock) -> None:
    traces, inner = TracingProcess(clock), Leases()
    leases = TracedLeases(inner, traces.tracer, clock)
    leased = await leases.acquire(BOOTING.id, None)
    assert leased is not None
    inner.is_lost = True
    with pytest.raises(StaleWrite):
        await leases.save(leased, Change(READY))
    assert traces.spans() == []
    inner.is_lost = False
    await leases.save(leased, Change(READY))
    assert {it.name for it in traces.spans()} == {"rental"}
    traces.close()
