"""A world as plain JSON, so that a demo finds its machines again after a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from gpuherd.simulator.faults import ArmedFault
from gpuherd.simulator.market import Weather
from gpuherd.simulator.simulated_account import AccountJob, NetworkVolume, PrewarmTask
from gpuherd.simulator.simulated_bill import Use
from gpuherd.simulator.simulated_catalogue import RegistryAuth, StoredTemplate
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.world_state import TimelineEvent, WorldState

VERSION = 2


@dataclass(frozen=True)
class SavedWorld:
    """All that exists. The file holds the simulated passwords: keep it where you keep passwords."""

    version: int
    now: float
    scenario: str
    machines: list[SimulatedMachine]
    listed: list[str]
    agenda: list[TimelineEvent]
    stock: list[tuple[str, str, int]]
    templates: list[StoredTemplate]
    registry_auths: list[RegistryAuth]
    jobs: list[AccountJob]
    faults: list[ArmedFault]
    calls: dict[str, int]
    # Price and spot price by product.
    prices: dict[str, tuple[int, int]]
    first_prices: dict[str, int]
    withheld: list[tuple[str, str]]
    weather: Weather
    volumes: list[NetworkVolume]
    prewarms: list[PrewarmTask]
    uses: dict[str, list[Use]]
    deposit: str | None


def dump_state(state: WorldState) -> dict[str, Any]:
    """Return the world as plain JSON."""
    state.tick()
    account, market = state.account, state.stock_levels
    saved = SavedWorld(
        version=VERSION,
        now=state.now(),
        scenario=state.scenario,
        machines=list(state.machines.values()),
        listed=list(state.listed),
        agenda=sorted(state.timeline.events),
        stock=list(market),
        templates=list(account.templates.values()),
        registry_auths=list(account.registry_auths.values()),
        jobs=account.jobs,
        faults=state.faults.armed,
        calls=dict(state.calls),
        prices={it.id: (it.price, it.spot_price) for it in state.catalogue.products},
        first_prices=state.first_prices,
        withheld=sorted(market.withheld),
        weather=state.weather,
        volumes=list(state.volumes.all.values()),
        prewarms=list(state.prewarms.all.values()),
        uses=state.uses.traces,
        deposit=None if state.deposit is None else str(state.deposit),
    )
    dumped: dict[str, Any] = _saved_world().dump_python(saved, mode="json", by_alias=True)
    return dumped


def restore_state(state: WorldState, data: dict[str, Any]) -> None:
    """Put what was dumped into a fresh world; time has passed meanwhile, and never goes back."""
    if data.get("version") != VERSION:
        raise ValueError(f"this is not a world of version {VERSION}")
    saved = _saved_world().validate_python(data)
    state.fast_forward_to(saved.now)
    state.scenario = saved.scenario
    state.machines = {machine.id: machine for machine in saved.machines}
    state.listed = {machine_id: state.machines[machine_id] for machine_id in saved.listed}
    state.all_listed_at = max((each.unlisted_until for each in state.listed.values()), default=0.0)
    state.timeline.restore(saved.agenda)
    for product_id, cluster_id, units in saved.stock:
        # The catalogue may have changed since; what is no longer sold has no shelf.
        if state.stock_levels.sells(product_id, cluster_id):
            state.stock_levels.set_units(product_id, cluster_id, units)
    account = state.account
    account.templates = {each.id: each for each in saved.templates}
    account.registry_auths = {each.id: each for each in saved.registry_auths}
    account.jobs = saved.jobs
    state.faults.armed = saved.faults
    state.record.counts.update(saved.calls)
    prices = {it.id: saved.prices.get(it.id, (it.price, it.spot_price)) for it in state.catalogue.products}
    products = tuple(
        replace(it, price=prices[it.id][0], spot_price=prices[it.id][1]) for it in state.catalogue.products
    )
    state.catalogue = replace(state.catalogue, products=products)
    state.first_prices = saved.first_prices
    state.stock_levels.withheld = set(saved.withheld)
    state.weather = saved.weather
    state.volumes.all = {each.id: each for each in saved.volumes}
    state.prewarms.all = {each.id: each for each in saved.prewarms}
    state.uses.traces = saved.uses
    state.deposit = None if saved.deposit is None else Fraction(saved.deposit)


@cache
def _saved_world() -> TypeAdapter[SavedWorld]:
    return TypeAdapter(SavedWorld)
