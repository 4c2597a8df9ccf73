"""The simulator's own endpoints."""

from __future__ import annotations

from random import Random

import aiohttp
import pytest

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.simulator.faults import FaultKind
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World
from tests.simulator.builders import a_body, a_running_machine, status_of
from tests.simulator.conftest import Client
from tests.support.fake_clock import FakeClock


async def test_the_state_tells_the_truth_about_machines_and_money(
    novita: Client, world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock)
    world.delete(machine.id)
    await clock.advance(10)
    status, state = await novita.control("GET", "/state")
    assert status == 200
    (shown,) = state["machines"]
    assert (shown["id"], shown["status"], shown["alive"]) == (machine.id, "gone", False)
    assert state["alive"] == 0
    assert state["bill"]["gpuSeconds"] == shown["gpuSeconds"] > 0
    assert {"productId": "4090.16c62g", "clusterId": "us-ca-6", "units": 50} in state["stock"]


async def test_no_key_is_needed_and_no_password_told(novita: Client, world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    async with aiohttp.ClientSession() as session:
        _, state = await Client(session, novita.base_url).control("GET", "/state")
    assert machine.ssh_password not in str(state)


async def test_faults_can_be_added_replaced_seen_and_cleared(novita: Client, world: World) -> None:
    lost = {"kind": "lost_reply_after_commit", "count": 1, "nameContains": "job"}
    status, body = await novita.control("POST", "/faults", lost)
    assert (status, body) == (200, {"faults": [{**lost, "strikes": 0}]})
    with pytest.raises(aiohttp.ClientConnectionError):
        await novita.post("/gpu/instance/create", a_body())
    _, body = await novita.control("GET", "/faults")
    assert body["faults"] == [{**lost, "strikes": 1}]
    assert body["strikes"] == {"lost_reply_after_commit": 1}
    assert set(body["kinds"]) == set(FaultKind)
    several = {
        "faults": [
            {"kind": "outage", "probability": 0, "afterSeconds": 1, "forSeconds": 2, "endpoints": ["list"]},
            {"kind": "reclaim", "seconds": 5, "noticeSeconds": 6, "style": "time_at_notice"},
        ],
        "replace": True,
    }
    _, body = await novita.control("POST", "/faults", several)
    assert [fault["kind"] for fault in body["faults"]] == ["outage", "reclaim"]
    assert world.faults.armed[0].fault.probability == 0
    assert world.faults.armed[1].fault.notice_s == 6
    await novita.control("DELETE", "/faults")
    assert world.faults.armed == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"kind": "boredom"}, "kind"),
        ({}, "kind"),
        ({"kind": "outage", "propability": 1}, "'propability'"),
        ({"kind": "outage", "probability": 2}, "probability"),
        ({"kind": "outage", "endpoints": ["everything"]}, "everything"),
        ({"kind": "outage", "endpoints": "list"}, "endpoints"),
        ({"kind": "outage", "style": "odd"}, "style"),
        ({"kind": "outage", "seconds": "long"}, "seconds"),
        ({"faults": [{"kind": "outage"}, {"kind": "boredom"}]}, "kind"),
        ([], "object"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused_and_nothing_set(
    novita: Client, world: World, body: object, complaint: str
) -> None:
    status, reply = await novita.control("POST", "/faults", body)
    assert status == 400
    assert complaint in reply["error"]
    assert world.faults.armed == []


async def test_a_body_that_is_not_json_is_refused(novita: Client) -> None:
    status, reply = await novita.ask("POST", "/_simulator/faults", data=b"{")
    assert (status, reply["error"]) == (400, "the body is not JSON")


async def test_a_scenario_can_be_played_and_ended(novita: Client, world: World) -> None:
    status, body = await novita.control("POST", "/scenario", {"name": "sold-out-hk"})
    assert (status, body["scenario"]) == (200, "sold-out-hk")
    assert world.free_units("L40S.22c125g", "cn-hongkong-1") == 0
    _, body = await novita.control("GET", "/scenario")
    assert body["scenario"] == "sold-out-hk"
    assert "calm" in body["scenarios"]
    await novita.control("DELETE", "/faults")
    assert world.scenario == "calm"
    status, body = await novita.control("POST", "/scenario", {"name": "paradise"})
    assert status == 400
    assert "paradise" in body["error"]


async def test_stock_can_be_set(novita: Client, world: World) -> None:
    place = {"productId": "4090.16c62g", "clusterId": "us-ca-6"}
    assert await novita.control("POST", "/stock", {**place, "units": 3}) == (200, {**place, "units": 3})
    assert world.free_units("4090.16c62g", "us-ca-6") == 3
    for wrong in ({**place, "units": -1}, {**place, "clusterId": "mars", "units": 1}, place):
        status, _ = await novita.control("POST", "/stock", wrong)
        assert status == 400


async def test_a_machine_can_be_reclaimed(novita: Client, world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    status, shown = await novita.control("POST", "/reclaim", {"instanceId": machine.id, "noticeSeconds": 60})
    assert (status, shown["spotStatus"]) == (200, "notified")
    await clock.advance(90)
    assert status_of(world, machine) == "exited"
    status, _ = await novita.control("POST", "/reclaim", {"instanceId": "0123456789abcdef"})
    assert status == 404


async def test_a_movable_clock_can_be_moved(novita: Client, world: World) -> None:
    before = world.now()
    status, body = await novita.control("POST", "/advance", {"seconds": 60})
    assert (status, body["now"]) == (200, before + 60)
    assert (await novita.control("POST", "/advance", {}))[0] == 400


async def test_the_real_clock_cannot_be_moved() -> None:
    server = await start_simulator(World(SystemClock(), Random(1)))
    try:
        async with aiohttp.ClientSession() as session:
            status, body = await Client(session, server.base_url).control("POST", "/advance", {"seconds": 1})
    finally:
        await server.close()
    assert status == 400
    assert "real clock" in body["error"]


async def test_calls_are_counted(novita: Client) -> None:
    await novita.get("/clusters")
    await novita.get("/gpu/instances")
    await novita.get("/gpu/instance", instanceId="0123456789abcdef")
    _, body = await novita.control("GET", "/calls")
    assert body["calls"] == {"clusters": 1, "list": 1, "get": 1}
    assert [line["outcome"] for line in body["log"]] == ["ok", "ok", "404 RESOURCE_NOT_FOUND"]
