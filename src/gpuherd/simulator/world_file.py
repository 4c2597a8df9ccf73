"""A world as plain JSON, so that a demo finds its machines again after a restart."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

from gpuherd.simulator.faults import ArmedFault, fault_from_json, fault_to_json
from gpuherd.simulator.market import Weather
from gpuherd.simulator.simulated_account import AccountJob, NetworkVolume, PrewarmTask
from gpuherd.simulator.simulated_bill import Dated, Use
from gpuherd.simulator.simulated_catalogue import RegistryAuth, StoredTemplate
from gpuherd.simulator.simulated_machine import (
    Reclaim,
    SimulatedMachine,
    StatusChange,
    StatusError,
)
from gpuherd.simulator.simulated_request import (
    CreateRequest,
    ExposedPort,
    Fields,
    NetworkStorage,
    Tool,
)
from gpuherd.simulator.world_state import Due, TimelineEvent, WorldState

VERSION = 1
Json = dict[str, Any]


def dump_state(state: WorldState) -> Json:
    """Return all that exists; it holds the simulated passwords, so keep it where you keep passwords."""
    state.tick()
    return {
        "version": VERSION,
        "now": state.now(),
        "scenario": state.scenario,
        "machines": [_machine_to_json(machine) for machine in state.machines.values()],
        "listed": list(state.listed),
        "agenda": [_event_to_json(event) for event in sorted(state.timeline.events)],
        "stock": [list(row) for row in state.stock_levels],
        "templates": [_flat(template) for template in state.account.templates.values()],
        "registry_auths": [_flat(auth) for auth in state.account.registry_auths.values()],
        "jobs": [_flat(job) for job in state.account.jobs],
        "faults": [
            {"fault": fault_to_json(armed.fault), "since": armed.since, "strikes": armed.strikes}
            for armed in state.faults.armed
        ],
        "calls": dict(state.calls),
        "prices": {it.id: [it.price, it.spot_price] for it in state.catalogue.products},
        "first_prices": state.first_prices,
        "withheld": sorted(state.stock_levels.withheld),
        "weather": _flat(state.weather),
        "volumes": [_flat(volume) for volume in state.volumes.all.values()],
        "prewarms": [_flat(task) for task in state.prewarms.all.values()],
        "uses": state.uses.traces,
        "deposit": None if state.deposit is None else str(state.deposit),
    }


def restore_state(state: WorldState, data: Json) -> None:
    """Put what was dumped into a fresh world; time has passed meanwhile, and never goes back."""
    if data.get("version") != VERSION:
        raise ValueError(f"this is not a world of version {VERSION}")
    state.fast_forward_to(data["now"])
    state.scenario = data["scenario"]
    state.machines = {each["id"]: _machine(each) for each in data["machines"]}
    state.listed = {machine_id: state.machines[machine_id] for machine_id in data["listed"]}
    state.all_listed_at = max((each.unlisted_until for each in state.listed.values()), default=0.0)
    state.timeline.restore([_event(each) for each in data["agenda"]])
    for product_id, cluster_id, units in data["stock"]:
        # The catalogue may have changed since; what is no longer sold has no shelf.
        if state.stock_levels.sells(product_id, cluster_id):
            state.stock_levels.set_units(product_id, cluster_id, units)
    account = state.account
    account.templates = {each["id"]: _template(each) for each in data["templates"]}
    account.registry_auths = {each["id"]: RegistryAuth(**each) for each in data["registry_auths"]}
    account.jobs = [AccountJob(**each) for each in data["jobs"]]
    state.faults.armed = [
        ArmedFault(fault_from_json(Fields(each["fault"])), each["since"], each["strikes"])
        for each in data["faults"]
    ]
    state.record.counts.update(data["calls"])
    _restore_money(state, data)


def _restore_money(state: WorldState, data: Json) -> None:
    """Put back what moves prices and the bill; a world kept by an earlier version has none of it."""
    products = state.catalogue.products
    kept = data.get("prices", {})
    prices = {it.id: kept.get(it.id, (it.price, it.spot_price)) for it in products}
    state.catalogue = replace(
        state.catalogue,
        products=tuple(replace(it, price=prices[it.id][0], spot_price=prices[it.id][1]) for it in products),
    )
    state.first_prices = data.get("first_prices", {})
    state.stock_levels.withheld = {(product, cluster) for product, cluster in data.get("withheld", ())}
    state.weather = Weather(**data.get("weather", {}))
    state.volumes.all = {each["id"]: _volume(each) for each in data.get("volumes", ())}
    state.prewarms.all = {each["id"]: _prewarm(each) for each in data.get("prewarms", ())}
    traces = data.get("uses", {})
    state.uses.traces = {machine_id: [Use(*use) for use in trace] for machine_id, trace in traces.items()}
    deposit = data.get("deposit")
    state.deposit = None if deposit is None else Fraction(deposit)


def _flat(item: Any) -> Json:
    """Return the fields of a dataclass; `asdict` copies deeply, which takes seconds for ten thousand."""
    return {field.name: getattr(item, field.name) for field in fields(item)}


def _machine_to_json(machine: SimulatedMachine) -> Json:
    # Its lists need no copies: a machine's turns and ports are replaced, never changed in place.
    return {**_flat(machine), "request": _flat(machine.request)}


def _event_to_json(event: TimelineEvent) -> Json:
    return {**_flat(event), "due": event.due.value, "request": event.request and _flat(event.request)}


def _machine(data: Json) -> SimulatedMachine:
    data = dict(data)
    # A world kept by an earlier version has one price and one size of the disk for all time.
    price = data.pop("price", 0)
    created_at = data["created_at"]
    data.setdefault("prices", [[created_at, price]])
    data.setdefault("disks", [[created_at, data["request"]["disk_gb"]]])
    return SimulatedMachine(
        **{
            **data,
            "prices": [Dated(*each) for each in data["prices"]],
            "disks": [Dated(*each) for each in data["disks"]],
            "request": _request(data["request"]),
            "turns": [StatusChange(*turn) for turn in data["turns"]],
            "proxy_ports": {int(port): proxy for port, proxy in data["proxy_ports"].items()},
            "failure": StatusError(*data["failure"]) if data["failure"] else None,
            "reclaim": Reclaim(*data["reclaim"]) if data["reclaim"] else None,
        }
    )


def _volume(data: Json) -> NetworkVolume:
    return NetworkVolume(**{**data, "sizes": tuple(Dated(*each) for each in data["sizes"])})


def _prewarm(data: Json) -> PrewarmTask:
    return PrewarmTask(**{**data, "product_ids": tuple(data["product_ids"])})


def _request(data: Json) -> CreateRequest:
    return CreateRequest(
        **{
            **data,
            "ports": tuple(ExposedPort(*port) for port in data["ports"]),
            "tools": tuple(Tool(*tool) for tool in data["tools"]),
            "envs": tuple((key, value) for key, value in data["envs"]),
            "network_storages": tuple(NetworkStorage(*each) for each in data["network_storages"]),
        }
    )


def _event(data: Json) -> TimelineEvent:
    request = _request(data["request"]) if data["request"] else None
    return TimelineEvent(**{**data, "due": Due(data["due"]), "request": request})


def _template(data: Json) -> StoredTemplate:
    pairs = {name: tuple(tuple(each) for each in data[name]) for name in ("ports", "envs", "tools")}
    return StoredTemplate(**{**data, **pairs})
