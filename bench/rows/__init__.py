"""One file for each promise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from bench.environment import BenchEnvironment
from bench.report import Line
from bench.rows import (
    burst,
    costs,
    feel,
    fleet,
    idle,
    memory,
    recovery,
    rental,
    replicas,
    restart,
    webhook,
)
from bench.rows.requests import comprehensive, create, get, listing

Row = Callable[[BenchEnvironment], Awaitable[list[Line]]]

ROWS: Mapping[str, Row] = {
    "create": create.measure,
    "get": get.measure,
    "list": listing.measure,
    "comprehensive": comprehensive.measure,
    "burst": burst.measure,
    "webhook": webhook.measure,
    "fleet": fleet.measure,
    "memory": memory.measure,
    "restart": restart.measure,
    "recovery": recovery.measure,
    "idle": idle.measure,
    "rental": rental.measure,
    "replicas": replicas.measure,
    "costs": costs.measure,
    "feel": feel.measure,
}
