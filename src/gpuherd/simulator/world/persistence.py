"""A world as plain JSON, so that a demo finds its machines again after a restart."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gpuherd.simulator.account import Job
from gpuherd.simulator.agenda import Due, Event
from gpuherd.simulator.catalogue import RegistryAuth, Template
from gpuherd.simulator.create_request import CreateRequest, NetworkStorage, Port, Tool
from gpuherd.simulator.fault_json import fault_from_json, fault_to_json
from gpuherd.simulator.faults import Armed
from gpuherd.simulator.fields import Fields
from gpuherd.simulator.ground import Ground
from gpuherd.simulator.machine import Failure, Machine, Reclaim, Turn

VERSION = 1

Json = dict[str, Any]


def dump_ground(ground: Ground) -> Json:
    """Return all that exists; it holds the simulated passwords, so keep it where you keep passwords."""
    ground.tick()
    return {
        "version": VERSION,
        "now": ground.now(),
        "scenario": ground.scenario,
        "machines": [_machine_to_json(machine) for machine in ground.machines.values()],
        "listed": list(ground.listed),
        "agenda": [_event_to_json(event) for event in sorted(ground.agenda.events)],
        "stock": [list(row) for row in ground.shelf],
        "templates": [_flat(template) for template in ground.account.templates.values()],
        "registry_auths": [_flat(auth) for auth in ground.account.registry_auths.values()],
        "jobs": [_flat(job) for job in ground.account.jobs],
        "faults": [
            {"fault": fault_to_json(armed.fault), "since": armed.since, "strikes": armed.strikes}
            for armed in ground.faults.armed
        ],
        "calls": dict(ground.calls),
    }


def restore_ground(ground: Ground, data: Json) -> None:
    """Put what was dumped into a fresh world; time has passed meanwhile, and never goes back."""
    if data.get("version") != VERSION:
        raise ValueError(f"this is not a world of version {VERSION}")
    ground.not_before(data["now"])
    ground.scenario = data["scenario"]
    ground.machines = {each["id"]: _machine(each) for each in data["machines"]}
    ground.listed = {machine_id: ground.machines[machine_id] for machine_id in data["listed"]}
    ground.all_listed_at = max((each.unlisted_until for each in ground.listed.values()), default=0.0)
    ground.agenda.restore([_event(each) for each in data["agenda"]])
    for product_id, cluster_id, units in data["stock"]:
        # The catalogue may have changed since; what is no longer sold has no shelf.
        if ground.shelf.sells(product_id, cluster_id):
            ground.shelf.put(product_id, cluster_id, units)
    account = ground.account
    account.templates = {each["id"]: _template(each) for each in data["templates"]}
    account.registry_auths = {each["id"]: RegistryAuth(**each) for each in data["registry_auths"]}
    account.jobs = [Job(**each) for each in data["jobs"]]
    ground.faults.armed = [
        Armed(fault_from_json(Fields(each["fault"])), each["since"], each["strikes"])
        for each in data["faults"]
    ]
    ground.record.counts.update(data["calls"])


def _flat(item: Any) -> Json:
    """Return the fields of a dataclass; `asdict` copies deeply, which takes seconds for ten thousand."""
    return {field.name: getattr(item, field.name) for field in fields(item)}


def _machine_to_json(machine: Machine) -> Json:
    # Its lists need no copies: a machine's turns and ports are replaced, never changed in place.
    return {**_flat(machine), "request": _flat(machine.request)}


def _event_to_json(event: Event) -> Json:
    return {**_flat(event), "due": event.due.value, "request": event.request and _flat(event.request)}


def _machine(data: Json) -> Machine:
    return Machine(
        **{
            **data,
            "request": _request(data["request"]),
            "turns": [Turn(*turn) for turn in data["turns"]],
            "proxy_ports": {int(port): proxy for port, proxy in data["proxy_ports"].items()},
            "failure": Failure(*data["failure"]) if data["failure"] else None,
            "reclaim": Reclaim(*data["reclaim"]) if data["reclaim"] else None,
        }
    )


def _request(data: Json) -> CreateRequest:
    return CreateRequest(
        **{
            **data,
            "ports": tuple(Port(*port) for port in data["ports"]),
            "tools": tuple(Tool(*tool) for tool in data["tools"]),
            "envs": tuple((key, value) for key, value in data["envs"]),
            "network_storages": tuple(NetworkStorage(*each) for each in data["network_storages"]),
        }
    )


def _event(data: Json) -> Event:
    request = _request(data["request"]) if data["request"] else None
    return Event(**{**data, "due": Due(data["due"]), "request": request})


def _template(data: Json) -> Template:
    pairs = {name: tuple(tuple(each) for each in data[name]) for name in ("ports", "envs", "tools")}
    return Template(**{**data, **pairs})
