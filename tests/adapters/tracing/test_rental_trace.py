"""One rental is one trace, whatever process adds to it; what comes later is linked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from gpuherd.adapters import otel_tracer, traced_leases
from gpuherd.adapters.otel_tracer import STEPS
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.trace_spans import CODE, INSTANCE_ID, OUTCOME, root_span_id_of, trace_id_of
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.adapters.tracing.exported import TracingProcess, lasted_s, names, one
from tests.support.herd import Herd

Start = Callable[..., tuple[Herd, TracingProcess]]
CANARY = "canary-that-no-span-shows"


@pytest.mark.proves("T1")
async def test_one_rental_is_one_trace_of_the_id_of_its_instance(processes: Start) -> None:
    herd, traces = processes()
    it = await herd.settle(
        await herd.launch(webhook_url="https://example.com/hook", health_check=HealthCheck())
    )
    rental = traces.spans(it.id)
    assert set(names(rental)) == {
        *("rental", "accept", "wait: queue", "turn", "boot: pulling", "health round")
    }
    root = one(rental, "rental")
    assert root.parent_id is None and root.span_id == root_span_id_of(it.id)
    assert {span.parent_id for span in rental if span.parent_id} == {root.span_id}
    assert len(rental) - 1 == sum(span.parent_id is not None for span in rental)
    assert root.attributes[OUTCOME] == "usable"
    assert all(span.attributes.get(INSTANCE_ID, it.id) == it.id for span in rental)
    first = next(span for span in rental if span.name == "turn")
    assert "Rent" in str(first.attributes[STEPS])
    waited = one(rental, "wait: queue")
    assert waited.start_time == root.start_time and waited.end_time == first.start_time
    assert len([name for name in names(rental) if name == "turn"]) < 8, "only those that did something"
    assert all(span.start_time >= root.start_time and lasted_s(span) >= 0 for span in rental)


@pytest.mark.proves("T1")
async def test_deliveries_and_operations_are_linked_to_their_rental(processes: Start) -> None:
    herd, traces = processes()
    herd.receiver.accepts = lambda _: len(herd.receiver.tried) > 1
    it = await herd.settle(await herd.launch(webhook_url="https://example.com/hook"))
    in_rental = len(traces.spans(it.id))
    await herd.run_for(timedelta(minutes=10))
    stopped = await herd.stop(it.id)
    await herd.settle(stopped.instance)
    assert len(traces.spans(it.id)) == in_rental, "the rental was over"
    operation = (await herd.get(it.id)).operation
    assert operation is not None
    stop = traces.spans(operation.id)
    root = one(stop, "stop")
    assert root.span_id == root_span_id_of(operation.id) and "turn" in names(stop)
    deliveries = [span for span in traces.spans() if span.name == "delivery"]
    tries = [span for span in traces.spans() if span.name == "webhook try"]
    assert len(tries) == len(deliveries) + 1
    outcomes = {span.attributes[OUTCOME] for span in tries}
    assert outcomes == {"ok", "http_5xx"}
    linked = root_span_id_of(it.id)
    for span in (root, *deliveries, *tries):
        assert [link.span_id for link in span.links] == [linked]
        assert span.trace_id != trace_id_of(it.id)
    assert {span.parent_id for span in tries} == {span.span_id for span in deliveries}


@pytest.mark.proves("T1")
async def test_another_process_goes_on_in_the_same_trace(processes: Start) -> None:
    herd, before = processes()
    it = await herd.launch()
    await herd.run_for(timedelta(seconds=1))
    herd, after = processes()
    it = await herd.settle(await herd.get(it.id))
    assert it.usable
    assert "accept" in names(before.spans(it.id)) and "rental" not in names(before.spans(it.id))
    root = one(after.spans(it.id), "rental")
    parts = [*before.spans(it.id), *after.spans(it.id)]
    assert {span.parent_id for span in parts if span.parent_id} == {root.span_id}
    assert root.start_time == one(parts, "wait: queue").start_time


async def test_boots_are_followed_as_long_as_there_is_room(
    processes: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traced_leases, "BOOTS_MAX", 0)
    herd, traces = processes()
    it = await herd.settle(await herd.launch())
    assert [name for name in names(traces.spans(it.id)) if name.startswith("boot")] == ["boot"]


async def test_a_wait_for_capacity_is_one_span_however_long(processes: Start, world: World) -> None:
    herd, traces = processes()
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1_000_000))
    it = await herd.launch(capacity_wait_s=86_400)
    await herd.run_for(timedelta(minutes=20))
    waiting = traces.spans(it.id)
    await herd.run_for(timedelta(minutes=40))
    assert len(traces.spans(it.id)) <= len(waiting) + 8, "the tries, and nothing for the looks between them"
    assert "wait: capacity" not in names(traces.spans(it.id))
    world.faults.replace([])
    it = await herd.settle(it)
    waited = one(traces.spans(it.id), "wait: capacity")
    assert lasted_s(waited) > 3000
    assert it.usable and lasted_s(one(traces.spans(it.id), "rental")) > lasted_s(waited)


async def test_a_rental_that_failed_says_why(processes: Start) -> None:
    herd, traces = processes()
    herd.prober.is_up = lambda _: False
    it = await herd.settle(await herd.launch(health_check=HealthCheck(max_wait_ms=5000)))
    assert it.status is Status.FAILED
    root = one(traces.spans(it.id), "rental")
    assert root.failed
    assert (root.attributes[OUTCOME], root.attributes[CODE]) == ("failed", "HEALTH_CHECK_FAILED")


async def test_a_rental_is_kept_with_all_that_comes_of_it_or_not_at_all(processes: Start) -> None:
    herd, traces = processes(ratio=0.5)
    made = [
        await herd.settle(await herd.launch(name=f"job-{i}", webhook_url="https://example.com/hook"))
        for i in range(12)
    ]
    kept = {it.id for it in made if traces.spans(it.id)}
    assert 0 < len(kept) < len(made)
    linked = {link.trace_id for span in traces.spans() for link in span.links}
    assert linked == {trace_id_of(it) for it in kept}


@pytest.mark.proves("T3")
async def test_nothing_that_a_user_or_the_cloud_wrote_is_in_a_span(processes: Start) -> None:
    herd, traces = processes()
    it = await herd.launch(
        name=CANARY, labels={"team": CANARY}, webhook_url=f"https://example.com/hook?token={CANARY}"
    )
    await herd.settle(it)
    creates = (ApiEndpoint.CREATE,)
    herd.world.faults.add(
        Fault(FaultKind.REFUSE, endpoints=creates, status=400, reason="VALIDATOR_PARAM", message=CANARY)
    )
    refused = await herd.settle(await herd.launch())
    assert refused.last_error is not None and CANARY in refused.last_error.message
    shown = traces.exported()
    assert it.id.encode() in shown and refused.id.encode() in shown
    assert CANARY.encode() not in shown and b"example.com" not in shown


@pytest.mark.proves("T2")
async def test_a_tracer_that_fails_takes_nothing_with_it(
    processes: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    herd, traces = processes()

    def fail(*_: object, **__: object) -> None:
        raise ValueError(CANARY)

    monkeypatch.setattr(otel_tracer.SpanSender, "send", fail)
    monkeypatch.setattr(traced_leases, "_boot", fail)
    it = await herd.settle(await herd.launch(webhook_url="https://example.com/hook"))
    assert it.usable and len(herd.world.machines) == 1
    assert traces.spans() == [] and traces.tracer.counts()["dropped"] > 5
