"""The programs on the machines, as a visitor meets them."""

from __future__ import annotations

import asyncio

import pytest

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_request import ExposedPort, Tool
from gpuherd.simulator.world import World
from tests.simulator.builders import BOOT_S, a_request, a_running_machine
from tests.simulator.conftest import Client
from tests.support.fake_clock import FakeClock


async def visit(novita: Client, path: str) -> tuple[int, str]:
    async with novita.session.get(f"{novita.base_url}/_apps/{path}") as reply:
        assert reply.content_type == "text/html"
        return reply.status, await reply.text()


async def test_a_program_answers_a_little_after_its_machine_runs(
    novita: Client, world: World, clock: FakeClock
) -> None:
    machine = world.machines[world.create(a_request())]
    path = f"{machine.id}/8080"
    status, page = await visit(novita, path)
    assert status == 502
    assert "502 Bad Gateway" in page
    await clock.advance(machine.turns[-1].at - world.now())
    assert machine.status(world.now()) == "running"
    assert (await visit(novita, path))[0] == 502
    await clock.advance(5)
    status, page = await visit(novita, f"{path}/any/path")
    assert status == 200
    assert "job-7 is up" in page
    world.restart(machine.id)
    assert (await visit(novita, path))[0] == 502
    await clock.advance(BOOT_S)
    assert (await visit(novita, path))[0] == 200
    world.stop(machine.id)
    assert (await visit(novita, path))[0] == 502


async def test_only_http_ports_that_were_asked_for_exist(
    novita: Client, world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock, tools=(Tool("Jupyter", 8888, "http"),))
    seen = {port: (await visit(novita, f"{machine.id}/{port}"))[0] for port in (8080, 8888, 22, 9999)}
    assert seen == {8080: 200, 8888: 200, 22: 404, 9999: 404}
    assert (await visit(novita, "0123456789abcdef/8080"))[0] == 404


async def test_a_name_is_shown_and_not_run(novita: Client, world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, name="<script>x</script>")
    _, page = await visit(novita, f"{machine.id}/8080")
    assert "<script>" not in page


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [(FaultKind.APP_DOWN, 502, "502 Bad Gateway"), (FaultKind.APP_ERROR_PAGE, 200, "502 Bad Gateway")],
)
async def test_a_program_can_be_broken(
    novita: Client, world: World, clock: FakeClock, kind: FaultKind, status: int, words: str
) -> None:
    sick = await a_running_machine(world, clock, name="sick")
    sound = await a_running_machine(world, clock, name="sound", ports=(ExposedPort(80, "http"),))
    world.faults.add(Fault(kind, name_contains="sick"))
    shown, page = await visit(novita, f"{sick.id}/8080")
    assert shown == status
    assert words in page
    assert "sound is up" in (await visit(novita, f"{sound.id}/80"))[1]


async def test_an_outage_of_the_api_does_not_reach_the_programs(
    novita: Client, world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock)
    world.faults.add(Fault(FaultKind.OUTAGE), Fault(FaultKind.HANG, seconds=1000))
    assert (await visit(novita, f"{machine.id}/8080"))[0] == 200


async def test_a_program_can_be_slow(novita: Client, world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    world.faults.add(Fault(FaultKind.HANG, endpoints=(ApiEndpoint.APP,), seconds=10))
    call = asyncio.create_task(visit(novita, f"{machine.id}/8080"))
    while not clock.sleepers:
        await clock.settle()
    await clock.advance(10)
    assert (await call)[0] == 200
