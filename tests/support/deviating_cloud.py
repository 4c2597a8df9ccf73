"""A Novita that does otherwise than its documents say: `doctor --live` must find out each difference."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from gpuherd.simulator.billing_api import HOST_PATH
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import PRICE_UNITS_PER_USD
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.simulated_request import SimulatedError, invalid
from gpuherd.simulator.simulator_app import BASE_PATH, Exchange, exchange
from gpuherd.simulator.wire_reply import WireReply, error_reply
from gpuherd.simulator.world import World

PAGE_SIZE_MAX = 100
LIMIT_HEADERS = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59"}

Change = Callable[[dict[str, Any]], None]


class Deviation(StrEnum):
    """One difference."""

    ENVS_HIDDEN = "neither list nor get returns the environment"
    ENDPOINTS_NOT_LISTED = "the list has no endpoints and no way to log in"
    PAGE_NO = "pages are numbered by pageNo; pageNum has no effect"
    SHORT_PAGES = "pages of more than 100 rows are refused"
    OTHER_NOT_FOUND = "an unknown machine is answered with 400 and words of its own"
    PRICES_IN_USD = "prices of products are in USD, with decimals"
    OTHER_LABELS = "clusters are not called as the regions of products"
    PORTS_KEPT = "ports stay the same over a stop and a start"
    BILL_ROUNDED_UP = "amounts of the bill are rounded up"
    BILL_BY_MINUTE = "every begun minute is billed"
    NO_INSTANCE_PRICE = "a machine does not say its price"
    NO_STAMPS = "a machine does not say when it was started"
    LIMITS_TOLD = "every answer tells a limit of 60 calls a minute"


D = Deviation
# With the faults that go along.
DEVIATING_SCENARIOS: Mapping[str, tuple[Deviation, tuple[Fault, ...]]] = {
    "tag-lost": (D.ENVS_HIDDEN, (Fault(FaultKind.DROP_NAME),)),
    **{it.name.lower().replace("_", "-"): (it, ()) for it in Deviation},
}


class PortsKeptWorld(World):
    """A start gives a machine the ports that it had."""

    def start(self, machine_id: str) -> SimulatedMachine:
        before = self.find(machine_id).proxy_ports
        machine = super().start(machine_id)
        machine.proxy_ports = before
        return machine


def deviating_exchange(world: World, deviations: Collection[Deviation]) -> Exchange:
    """Return the API of `world`, with its questions and answers changed."""
    documented = exchange(world)

    async def call(
        method: str, path: str, authorization: str, content: Mapping[str, object] | bytes
    ) -> WireReply:
        name = path.removeprefix(BASE_PATH).removeprefix(HOST_PATH)
        try:
            if not isinstance(content, bytes):
                content = _question(deviations, name, content)
        except SimulatedError as error:
            return error_reply(error)
        reply = await documented(method, path, authorization, content)
        if Deviation.OTHER_NOT_FOUND in deviations and reply.status == 404:
            reply = error_reply(SimulatedError(400, "INSTANCE_ABSENT", "nothing is known under this id"))
        changes = [change for it in deviations if (change := _CHANGES.get((it, name)))]
        if changes and reply.status == 200:
            body = json.loads(reply.body)
            for row in _rows(name, body):
                for change in changes:
                    change(row)
            reply = replace(reply, body=json.dumps(body).encode())
        if Deviation.LIMITS_TOLD in deviations:
            reply = replace(reply, headers={**reply.headers, **LIMIT_HEADERS})
        return reply

    return call


def _question(
    deviations: Collection[Deviation], name: str, values: Mapping[str, object]
) -> Mapping[str, object]:
    if name not in ("/gpu/instances", "/templates"):
        return values
    if Deviation.SHORT_PAGES in deviations and int(str(values.get("pageSize") or 0)) > PAGE_SIZE_MAX:
        raise invalid("pageSize", f"must not be more than {PAGE_SIZE_MAX}")
    if Deviation.PAGE_NO in deviations:
        return {**values, "pageNum": values.get("pageNo", "1")}
    return values


def _rows(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    if path == "/gpu/instance":
        return [body]
    return next((value for value in body.values() if isinstance(value, list)), [])


def _hide_envs(row: dict[str, Any]) -> None:
    row["envs"] = []


def _hide_endpoints(row: dict[str, Any]) -> None:
    row["portMappings"] = [{**it, "endpoint": ""} for it in row["portMappings"]]
    row["connectComponentSSH"] = {"sshCommand": "", "password": "", "isRunning": False}


def _price_in_usd(row: dict[str, Any]) -> None:
    for name in ("price", "spotPrice"):
        row[name] = str(Decimal(row[name]) / PRICE_UNITS_PER_USD)


def _rename_cluster(row: dict[str, Any]) -> None:
    row["name"] = f"Data center {row['id']}"


def _round_up(row: dict[str, Any]) -> None:
    if Decimal(row["amountDecimal"]) * 10_000 != int(row["amount"]):
        row["amount"] = row["payAmount"] = str(int(row["amount"]) + 1)


def _bill_minutes(row: dict[str, Any]) -> None:
    seconds = int(row["billNum0"])
    billed = -(-seconds // 60) * 60
    row["billNum0"] = str(billed)
    exact = Decimal(row["amountDecimal"]) * billed / max(1, seconds)
    row["amountDecimal"], row["amount"] = f"{exact:.12f}", str(int(exact * 10_000))


def _hide_price(row: dict[str, Any]) -> None:
    row.pop("instancePrice")


def _hide_stamps(row: dict[str, Any]) -> None:
    row["lastStartedAt"] = "0"


LIST, GET = "/gpu/instances", "/gpu/instance"
_CHANGES: Mapping[tuple[Deviation, str], Change] = {
    (Deviation.ENVS_HIDDEN, LIST): _hide_envs,
    (Deviation.ENVS_HIDDEN, GET): _hide_envs,
    (Deviation.ENDPOINTS_NOT_LISTED, LIST): _hide_endpoints,
    (Deviation.PRICES_IN_USD, "/products"): _price_in_usd,
    (Deviation.OTHER_LABELS, "/clusters"): _rename_cluster,
    (Deviation.BILL_ROUNDED_UP, "/billing/bill/list"): _round_up,
    (Deviation.BILL_BY_MINUTE, "/billing/bill/list"): _bill_minutes,
    (Deviation.NO_INSTANCE_PRICE, LIST): _hide_price,
    (Deviation.NO_INSTANCE_PRICE, GET): _hide_price,
    (Deviation.NO_STAMPS, LIST): _hide_stamps,
    (Deviation.NO_STAMPS, GET): _hide_stamps,
}
