"""The simulator's own endpoints below `/_simulator`: read the true state, set faults, stock and scenarios."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from aiohttp import web

from gpuherd.simulator.faults import (
    ApiEndpoint,
    Fault,
    fault_from_json,
    fault_to_json,
    kinds_to_json,
)
from gpuherd.simulator.faults import (
    FaultKind as Kind,
)
from gpuherd.simulator.market import CALM, Weather
from gpuherd.simulator.novita_shapes import Json
from gpuherd.simulator.simulated_bill import (
    BUSY,
    DISK,
    GPU,
    HOUR_S,
    VOLUME,
    Use,
    exact,
    millionths,
    total_usd,
)
from gpuherd.simulator.simulated_catalogue import PRICE_UNITS_PER_USD
from gpuherd.simulator.simulated_machine import SimulatedMachine, billed_gpu_s, machine_charges
from gpuherd.simulator.simulated_request import Fields, SimulatedError
from gpuherd.simulator.wire_reply import json_reply, web_response
from gpuherd.simulator.world import World, set_price, set_weather
from gpuherd.simulator.world_state import WorldState


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: a one-line description, and its faults."""

    description: str
    faults: tuple[Fault, ...] = ()
    weather: Weather = CALM


def _scenario(description: str, *faults: Fault) -> Scenario:
    return Scenario(description, faults)


CREATE = (ApiEndpoint.CREATE,)


SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "calm": _scenario("everything works"),
        "sold-out": _scenario("no GPU anywhere", Fault(Kind.SOLD_OUT)),
        "sold-out-hk": _scenario("no GPU in Hong Kong", Fault(Kind.SOLD_OUT, cluster="cn-hongkong-1")),
        "sold-out-for-a-minute": _scenario("no GPU anywhere for 60 s", Fault(Kind.SOLD_OUT, for_s=60)),
        "stale-stock": _scenario(
            "the catalogue shows stock, but the first 2 creates are refused", Fault(Kind.SOLD_OUT, count=2)
        ),
        "lost-reply": _scenario(
            "every create works, and no reply to one ever arrives", Fault(Kind.LOST_REPLY_AFTER_COMMIT)
        ),
        "lost-reply-before": _scenario(
            "the connection of the first create dies before anything happens",
            Fault(Kind.LOST_REPLY_BEFORE_COMMIT, count=1),
        ),
        "late-commit": _scenario(
            "the reply to the first create is lost, and its machine appears 20 s later",
            Fault(Kind.LATE_COMMIT, count=1, seconds=20),
        ),
        "error-after-commit": _scenario(
            "the first create rents a machine and answers 502",
            Fault(Kind.ERROR_AFTER_COMMIT, count=1, status=502),
        ),
        "garbage": _scenario(
            "the first replies to creates are cut, empty, a page, or an id that is a number",
            *(
                Fault(Kind.GARBAGE, count=1, style=style)
                for style in ("cut", "html", "empty_id", "number_id", "broken_json", "wrong_type")
            ),
        ),
        "flaky": _scenario(
            "one call in five goes wrong, one way or another",
            Fault(Kind.REFUSE, probability=0.04, status=500),
            Fault(Kind.OUTAGE, probability=0.03, style="html"),
            Fault(Kind.OUTAGE, probability=0.03, style="cut"),
            Fault(Kind.RATE_LIMIT, probability=0.03, retry_after="1"),
            Fault(Kind.HANG, probability=0.02, seconds=3),
            Fault(Kind.LOST_REPLY_BEFORE_COMMIT, probability=0.08),
            Fault(Kind.LOST_REPLY_AFTER_COMMIT, probability=0.08),
            Fault(Kind.ERROR_AFTER_COMMIT, probability=0.04),
            Fault(Kind.GET_404_GLITCH, probability=0.02),
        ),
        "slow": _scenario("every answer takes 2 s", Fault(Kind.HANG, seconds=2)),
        "slow-pull": _scenario("images take six times as long to pull", Fault(Kind.SLOW_PULL, factor=6)),
        "endless-pull": _scenario("images are pulled for ever", Fault(Kind.SLOW_PULL)),
        "pull-failure": _scenario("images cannot be pulled", Fault(Kind.PULL_FAILURE)),
        "rate-limited": _scenario(
            "every second call is answered with 429 and Retry-After: 2",
            Fault(Kind.RATE_LIMIT, probability=0.5, retry_after="2"),
        ),
        "list-lag": _scenario("new machines are listed 20 s late", Fault(Kind.LIST_LAG, seconds=20)),
        "list-very-late": _scenario("new machines are listed 100 s late", Fault(Kind.LIST_LAG, seconds=100)),
        "empty-list": _scenario(
            "for 60 s the list is empty, with status 200", Fault(Kind.EMPTY_LIST, for_s=60)
        ),
        "partial-list": _scenario(
            "pages are missing, doubled or short, and totals are wrong",
            *(
                Fault(Kind.PARTIAL_LIST, probability=0.1, style=style)
                for style in ("missing_page", "duplicated_page", "wrong_total", "short_page")
            ),
        ),
        "outage": _scenario(
            "after 10 s everything answers 503 for 60 s", Fault(Kind.OUTAGE, after_s=10, for_s=60)
        ),
        "cut-off": _scenario(
            "after 10 s every connection is cut for 60 s",
            Fault(Kind.OUTAGE, after_s=10, for_s=60, style="cut"),
        ),
        "reclaim": _scenario(
            "spot machines get their notice after 30 s and are gone 30 s later",
            Fault(Kind.RECLAIM, seconds=30, notice_s=30),
        ),
        "flapping": _scenario(
            "running machines are shown as starting or with unknown words at times",
            Fault(Kind.STATUS_FLAP, probability=0.3),
            Fault(Kind.UNKNOWN_STATUS, probability=0.1),
        ),
        "lost-name": _scenario("names are cut to 32 characters", Fault(Kind.DROP_NAME)),
        "start-went-through": _scenario(
            "starts work and answer that they did not", Fault(Kind.START_WENT_THROUGH)
        ),
        "app-down": _scenario("machines run, their programs never answer", Fault(Kind.APP_DOWN)),
        "app-error-page": _scenario(
            "programs answer 200 with a page that says 502", Fault(Kind.APP_ERROR_PAGE)
        ),
        "no-balance": _scenario(
            "the account has no money for creates",
            Fault(
                Kind.REFUSE,
                endpoints=CREATE,
                status=400,
                reason="BALANCE_NOT_ENOUGH",
                message="the balance is not enough",
            ),
        ),
        "spot-market": Scenario(
            "spot prices move by up to a fifth, products sell out for an hour, machines are taken back",
            weather=Weather(
                price_range=0.2, in_stock_s=6 * HOUR_S, out_of_stock_s=HOUR_S, reclaim_mean_s=6 * HOUR_S
            ),
        ),
        "price-follows": Scenario(
            "spot prices move every minute, and running machines pay today's price",
            weather=Weather(price_range=0.5, walk_every_s=60, price_follows=True),
        ),
        "metrics-zero": _scenario("every machine looks idle", Fault(Kind.WRONG_METRICS)),
        "metrics-gap": _scenario(
            "half of the samples of the metrics are missing", Fault(Kind.WRONG_METRICS, style="gap")
        ),
        "wrong-bill": _scenario(
            "the bill charges a tenth more than was agreed", Fault(Kind.WRONG_BILL, factor=1.1)
        ),
        "quoted-login": _scenario(
            "creates are refused, and the refusal quotes the registry password",
            Fault(
                Kind.REFUSE,
                endpoints=CREATE,
                status=400,
                reason="IMAGE_AUTH_INVALID",
                message="the image cannot be pulled",
                style="quotes_login",
            ),
        ),
        "key-revoked": _scenario(
            "the API key is refused",
            Fault(Kind.REFUSE, status=401, reason="UNAUTHORIZED", message="invalid api key"),
        ),
        "throttled-once": _scenario(
            "one call is answered with 429, without a Retry-After", Fault(Kind.RATE_LIMIT, count=1)
        ),
    }
)


def scenario_names() -> dict[str, str]:
    """Return every scenario with its description."""
    return {name: scenario.description for name, scenario in SCENARIOS.items()}


def apply_scenario(world: WorldState, name: str) -> None:
    """Replace all faults and the market's movement by those of a scenario."""
    if name not in SCENARIOS:
        raise ValueError(f"there is no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    world.faults.replace(SCENARIOS[name].faults)
    set_weather(world, SCENARIOS[name].weather)
    world.scenario = name


Command = Callable[[World, Fields], Awaitable[Json]]
TEN_DAYS_S = 864_000.0
YEAR_S = 366 * 86_400.0
FAULTS_MAX = 1000


@runtime_checkable
class MovableClock(Protocol):
    """A clock that can be set forward, as in tests."""

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
    """Add one fault, or `{"faults": [...], "replace": true}`."""
    several = fields.has("faults")
    read = fields.items("faults", most=FAULTS_MAX) if several else [fields]
    faults = [fault_from_json(each.values) for each in read]
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
    """Set how prices, stock and evictions move. Values that are not given stand still."""
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
    """Change the hourly USD price of a product's GPU."""
    price, spot_price = fields.number("price", low=0, high=1000), fields.number("spotPrice", low=0, high=1000)
    product = set_price(
        world,
        fields.text("productId", shortest=1),
        price=None if price is None else round(price * PRICE_UNITS_PER_USD),
        spot_price=None if spot_price is None else round(spot_price * PRICE_UNITS_PER_USD),
    )
    return {"productId": product.id, "price": product.price, "spotPrice": product.spot_price}


async def set_use(world: World, fields: Fields) -> Json:
    """Set how busy a machine is, in percent, from now (or `afterSeconds`) on."""
    machine = world.find(fields.text("instanceId", shortest=1))
    after_s = fields.number("afterSeconds", low=0, high=TEN_DAYS_S) or 0.0
    gpu, cpu = fields.number("gpu", low=0, high=100), fields.number("cpu", low=0, high=100)
    use = Use(world.now() + after_s, BUSY.gpu if gpu is None else gpu, BUSY.cpu if cpu is None else cpu)
    world.uses.set(machine.id, use)
    return {"instanceId": machine.id, "from": use.at, "gpu": use.gpu, "cpu": use.cpu}


async def set_balance(world: World, fields: Fields) -> Json:
    """Set the balance of the account. At zero, creates and starts are rejected."""
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
    """Add the simulator's own paths to `app`. There is no key, so serve it on loopback only."""
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
