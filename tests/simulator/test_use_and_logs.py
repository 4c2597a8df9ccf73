"""How busy machines are by the metrics API, and what their logs say."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.simulator_app import instance_log, system_log
from gpuherd.simulator.world import World
from tests.simulator.builders import a_request, a_running_machine
from tests.simulator.conftest import Client
from tests.support.fake_clock import FakeClock


async def measured(novita: Client, machine: SimulatedMachine, seconds: int = 1800) -> dict[str, Any]:
    now = int(machine.created_at) + 40
    path = f"/openapi/v1/metrics/gpu/instance?instanceId={machine.id}&interval=60"
    status, body = await novita.ask("GET", f"{path}&startTime={now}&endTime={now + seconds}")
    assert status == 200, body
    return body


async def test_a_machine_is_busy_until_told_otherwise(novita: Client, world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, gpu_num=2)
    await clock.advance(900)
    status, _ = await novita.control("POST", "/use", {"instanceId": machine.id, "gpu": 0, "cpu": 1})
    assert status == 200
    await clock.advance(900)
    body = await measured(novita, machine)
    values = [point["value"] for point in body["gpuUtilization"]["avg"]]
    assert values[0] == 80
    assert values[-1] == 0
    assert len(body["gpuUtilization"]["gpuIds"]) == 2
    assert body["cpuUtilization"][-1]["value"] == 1


async def test_samples_come_a_minute_late_and_none_of_a_stopped_machine(
    novita: Client, world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock)
    await clock.advance(600)
    newest = int((await measured(novita, machine))["cpuUtilization"][-1]["timestamp"])
    assert 60 <= world.now() - newest <= 120
    world.stop(machine.id)
    await clock.advance(3600)
    stopped = (await measured(novita, machine, 4000))["cpuUtilization"]
    assert int(stopped[-1]["timestamp"]) <= machine.created_at + 40 + 600 + 60


@pytest.mark.parametrize(("style", "samples"), [("zeros", 29), ("gap", 14), ("empty", 0)])
async def test_metrics_can_be_wrong(
    novita: Client, world: World, clock: FakeClock, style: str, samples: int
) -> None:
    machine = await a_running_machine(world, clock)
    await clock.advance(1800)
    world.faults.add(Fault(FaultKind.WRONG_METRICS, style=style))
    points = (await measured(novita, machine))["gpuUtilization"]["avg"]
    assert len(points) == pytest.approx(samples, abs=1)
    if style == "zeros":
        assert {point["value"] for point in points} == {0}


async def test_the_system_log_tells_the_progress_of_the_pull(world: World, clock: FakeClock) -> None:
    machine = world.machines[world.create(a_request())]
    await clock.advance(16)
    lines = [line.text for line in system_log(machine, world.now())]
    assert lines[0] == "instance is pending"
    pulled = [line for line in lines if line.startswith("pulled layer")]
    assert 0 < len(pulled) < 8
    await clock.advance(60)
    lines = [line.text for line in system_log(machine, world.now())]
    assert sum(line.startswith("pulled layer") for line in lines) == 8
    assert lines[-1] == "instance is running"


async def test_a_program_writes_while_it_runs(world: World, clock: FakeClock) -> None:
    machine = world.machines[world.create(a_request())]
    assert instance_log(machine, world.now()) == []
    await clock.advance(200)
    written = len(instance_log(machine, world.now()))
    assert written > 10
    world.stop(machine.id)
    await clock.advance(500)
    assert len(instance_log(machine, world.now())) <= written + 1


async def test_logs_are_streamed_until_the_machine_is_gone(
    novita: Client, world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock)
    _, shown = await novita.get("/gpu/instance", instanceId=machine.id)
    address = shown["connectComponentLog"]["systemLogAddress"]
    async with aiohttp.ClientSession() as session, session.get(address) as reply:
        first = await reply.content.readline()
        assert b"instance is pending" in first
        world.delete(machine.id)
        for _ in range(20):
            await clock.advance(1)
        rest = await reply.content.read()
    assert b"instance is removed" in rest


async def test_a_reader_who_leaves_a_log_leaves_no_error_behind(
    novita: Client, world: World, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    machine = await a_running_machine(world, clock)
    _, shown = await novita.get("/gpu/instance", instanceId=machine.id)
    address = shown["connectComponentLog"]["systemLogAddress"]
    async with aiohttp.ClientSession() as session:
        reply = await session.get(address)
        await reply.content.readline()
        reply.close()
    world.delete(machine.id)
    for _ in range(20):
        await clock.advance(1)
    assert caplog.records == []
