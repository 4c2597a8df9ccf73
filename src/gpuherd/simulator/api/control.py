"""The simulator's own endpoints, below `/_simulator`: see the truth, set faults, stock and scenarios."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Protocol, runtime_checkable

from aiohttp import web

from gpuherd.simulator.api.replies import json_reply
from gpuherd.simulator.api.shapes import Json
from gpuherd.simulator.errors import SimulatedError
from gpuherd.simulator.faults.fault_json import fault_from_json, fault_to_json, kinds_to_json
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.scenarios import apply_scenario, scenario_names
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.world import World

Command = Callable[[World, Fields], Awaitable[Json]]

TEN_DAYS_S = 864_000.0
FAULTS_MAX = 1000


@runtime_checkable
class MovableClock(Protocol):
    """A clock that can be set forward, as tests have."""

    async def advance(self, seconds: float) -> None: ...


async def see_state(world: World, _: Fields) -> Json:
    world.tick()
    return {
        "now": world.now(),
        "speed": world.speed,
        "scenario": world.scenario,
        "machines": [_machine_shape(machine, world.now()) for machine in world.machines.values()],
        "alive": len(world.alive()),
        "bill": {"gpuSeconds": round(world.billed_gpu_s(), 3), "costUsd": str(world.cost_usd())},
        "stock": [
            {"productId": product_id, "clusterId": cluster_id, "units": units}
            for product_id, cluster_id, units in world.stock_levels
        ],
        "faults": _armed(world),
    }


async def see_calls(world: World, _: Fields) -> Json:
    return {"calls": dict(world.calls), "log": [asdict(line) for line in world.log]}


async def see_faults(world: World, _: Fields) -> Json:
    return {"faults": _armed(world), "strikes": dict(world.faults.strikes), "kinds": kinds_to_json()}


async def add_faults(world: World, fields: Fields) -> Json:
    """Take one fault, or `{"faults": [...], "replace": true}`."""
    several = fields.has("faults")
    read = fields.items("faults", most=FAULTS_MAX) if several else [fields]
    faults = [fault_from_json(each) for each in read]
    if several and fields.flag("replace"):
        world.faults.replace(())
    world.faults.add(*faults)
    return {"faults": _armed(world)}


async def clear_faults(world: World, _: Fields) -> Json:
    apply_scenario(world, "calm")
    return {"faults": []}


async def see_scenarios(world: World, _: Fields) -> Json:
    return {"scenario": world.scenario, "scenarios": scenario_names()}


async def play_scenario(world: World, fields: Fields) -> Json:
    apply_scenario(world, fields.text("name", shortest=1))
    return {"scenario": world.scenario, "faults": _armed(world)}


async def set_stock(world: World, fields: Fields) -> Json:
    product_id, cluster_id = fields.text("productId", shortest=1), fields.text("clusterId", shortest=1)
    world.stock(product_id, cluster_id, fields.whole("units", low=0, high=10**9))
    return {
        "productId": product_id,
        "clusterId": cluster_id,
        "units": world.free_units(product_id, cluster_id),
    }


async def reclaim(world: World, fields: Fields) -> Json:
    notice_s = fields.number("noticeSeconds", low=0, high=TEN_DAYS_S)
    machine = world.reclaim(fields.text("instanceId", shortest=1), notice_s)
    return _machine_shape(machine, world.now())


async def advance(world: World, fields: Fields) -> Json:
    if not isinstance(world.clock, MovableClock):
        raise SimulatedError(
            400, "REQUEST", "this simulator runs on the real clock: it cannot be set forward"
        )
    seconds = fields.number("seconds", low=0, high=TEN_DAYS_S)
    if seconds is None:
        raise ValueError("say how many seconds")
    await world.clock.advance(seconds)
    world.tick()
    return {"now": world.now()}


COMMANDS: tuple[tuple[str, str, Command], ...] = (
    ("GET", "/state", see_state),
    ("GET", "/calls", see_calls),
    ("GET", "/faults", see_faults),
    ("POST", "/faults", add_faults),
    ("DELETE", "/faults", clear_faults),
    ("GET", "/scenario", see_scenarios),
    ("POST", "/scenario", play_scenario),
    ("POST", "/stock", set_stock),
    ("POST", "/reclaim", reclaim),
    ("POST", "/advance", advance),
)


def add_control(app: web.Application, world: World) -> None:
    """Let `app` answer the simulator's own paths; there is no key, so serve it on loopback only."""
    for method, path, command in COMMANDS:
        app.router.add_route(method, f"/_simulator{path}", _handler(world, command))


def _handler(world: World, command: Command) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return json_reply(await command(world, await _read_fields(request)))
        except SimulatedError as error:
            return json_reply({"error": error.message}, error.status)
        except ValueError as error:
            return json_reply({"error": str(error)}, 400)

    return handle


async def _read_fields(request: web.Request) -> Fields:
    raw = await request.read()
    try:
        body = json.loads(raw) if raw else {}
    except ValueError:
        raise ValueError("the body is not JSON") from None
    if not isinstance(body, Mapping):
        raise SimulatedError(400, "REQUEST", "the body is not a JSON object")
    return Fields(body)


def _armed(world: World) -> list[Json]:
    return [{**fault_to_json(armed.fault), "strikes": armed.strikes} for armed in world.faults.armed]


def _machine_shape(machine: SimulatedMachine, now: float) -> Json:
    return {
        "id": machine.id,
        "name": machine.name,
        "productId": machine.request.product_id,
        "clusterId": machine.cluster_id,
        "gpuNum": machine.request.gpu_num,
        "billingMode": machine.request.billing_mode,
        "status": "gone" if machine.is_gone(now) else machine.status(now),
        "spotStatus": machine.spot_status(now),
        "alive": machine.is_alive(now),
        "createdAt": machine.created_at,
        "goneAt": machine.gone_at,
        "gpuSeconds": round(machine.billed_gpu_s(now), 3),
        "costUsd": str(machine.cost_usd(now)),
    }
