"""The simulator's own endpoints, below `/_simulator`: see the truth, set faults, stock and scenarios."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Protocol, runtime_checkable

from aiohttp import web

from gpuherd.simulator.api.app import web_response
from gpuherd.simulator.api.replies import json_reply
from gpuherd.simulator.api.shapes import Json
from gpuherd.simulator.catalogue import PRICE_UNITS_PER_USD
from gpuherd.simulator.errors import SimulatedError
from gpuherd.simulator.faults.fault_json import fault_from_json, fault_to_json, kinds_to_json
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.money.bill import exact
from gpuherd.simulator.money.charge import DISK, GPU, VOLUME, millionths, total_usd
from gpuherd.simulator.money.use import BUSY, Use
from gpuherd.simulator.money.weather import Weather
from gpuherd.simulator.scenarios import apply_scenario, scenario_names
from gpuherd.simulator.world.machine import SimulatedMachine
from gpuherd.simulator.world.machine_charges import billed_gpu_s, machine_charges
from gpuherd.simulator.world.market import set_price, set_weather
from gpuherd.simulator.world.world import World

Command = Callable[[World, Fields], Awaitable[Json]]

TEN_DAYS_S = 864_000.0
YEAR_S = 366 * 86_400.0
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
        "bill": _bill_shape(world),
        "weather": asdict(world.weather),
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


async def change_weather(world: World, fields: Fields) -> Json:
    """Let prices, stock and evictions move by themselves; whatever is not named stands still."""
    calm = Weather()
    known = {name.replace("_", " ").title().replace(" ", ""): name for name in calm.__slots__}
    names = {name[0].lower() + name[1:]: field for name, field in known.items()}
    if unknown := sorted(fields.names() - set(names)):
        raise ValueError(f"the weather has no {', '.join(map(repr, unknown))}; it has {', '.join(names)}")
    values = {
        field: fields.flag(name) if field == "price_follows" else fields.number(name, low=0, high=YEAR_S)
        for name, field in names.items()
        if fields.has(name)
    }
    set_weather(world, replace(calm, **values))  # type: ignore[arg-type]
    return asdict(world.weather)


async def change_price(world: World, fields: Fields) -> Json:
    """Change the USD that a GPU of a product costs an hour."""
    price, spot_price = fields.number("price", low=0, high=1000), fields.number("spotPrice", low=0, high=1000)
    product = set_price(
        world,
        fields.text("productId", shortest=1),
        price=None if price is None else round(price * PRICE_UNITS_PER_USD),
        spot_price=None if spot_price is None else round(spot_price * PRICE_UNITS_PER_USD),
    )
    return {"productId": product.id, "price": product.price, "spotPrice": product.spot_price}


async def set_use(world: World, fields: Fields) -> Json:
    """Say how busy a machine is, in percent, from now (or `afterSeconds`) on."""
    machine = world.find(fields.text("instanceId", shortest=1))
    after_s = fields.number("afterSeconds", low=0, high=TEN_DAYS_S) or 0.0
    gpu, cpu = fields.number("gpu", low=0, high=100), fields.number("cpu", low=0, high=100)
    use = Use(world.now() + after_s, BUSY.gpu if gpu is None else gpu, BUSY.cpu if cpu is None else cpu)
    world.uses.set(machine.id, use)
    return {"instanceId": machine.id, "from": use.at, "gpu": use.gpu, "cpu": use.cpu}


async def set_balance(world: World, fields: Fields) -> Json:
    """Let the account have this much left; at nothing, creates and starts are refused."""
    left = fields.number("usd", low=-(10**6), high=10**9)
    if left is None:
        raise ValueError("say how many usd are left")
    world.deposit = Fraction(left) + world.bill_usd()
    return _bill_shape(world)


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
    ("POST", "/weather", change_weather),
    ("POST", "/price", change_price),
    ("POST", "/use", set_use),
    ("POST", "/balance", set_balance),
    ("POST", "/advance", advance),
)


def add_control(app: web.Application, world: World) -> None:
    """Let `app` answer the simulator's own paths; there is no key, so serve it on loopback only."""
    for method, path, command in COMMANDS:
        app.router.add_route(method, f"/_simulator{path}", _handler(world, command))


def _handler(world: World, command: Command) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return web_response(json_reply(await command(world, await _read_fields(request))))
        except SimulatedError as error:
            return web_response(json_reply({"error": error.message}, error.status))
        except ValueError as error:
            return web_response(json_reply({"error": str(error)}, 400))

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


def _bill_shape(world: World) -> Json:
    by_kind: dict[str, Fraction] = dict.fromkeys((GPU, DISK, VOLUME), Fraction(0))
    for charge in world.charges():
        by_kind[charge.kind] += charge.usd
    return {
        "gpuSeconds": round(world.billed_gpu_s(), 3),
        "costUsd": str(world.cost_usd()),
        "byKind": {kind: str(millionths(usd)) for kind, usd in by_kind.items()},
        "balanceUsd": str(millionths(world.balance_usd())),
    }


def _armed(world: World) -> list[Json]:
    return [{**fault_to_json(armed.fault), "strikes": armed.strikes} for armed in world.faults.armed]


def _machine_shape(machine: SimulatedMachine, now: float) -> Json:
    charges = machine_charges(machine, now)
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
        "gpuSeconds": round(billed_gpu_s(machine, now), 3),
        "costUsd": str(millionths(total_usd(charges))),
        "charges": [
            {
                "kind": it.kind,
                "from": it.span.begin,
                "to": it.span.end,
                "hourlyUsd": exact(it.usd_per_hour),
            }
            for it in charges
        ],
    }
