"""One file for each promise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from bench.environment import BenchEnvironment
from bench.report import Line
from bench.rows import (
    burst,
    costs,
    fleet,
    growth,
    idle,
    jobs,
    leases,
    memory,
    metering,
    recovery,
    rental,
    replicas,
    restart,
    webhook,
)
from bench.rows.requests import comprehensive, create, get, listing, streams, traces

Row = Callable[[BenchEnvironment], Awaitable[list[Line]]]

ROWS: Mapping[str, Row] = {
    "create": create.measure,
    "traces": traces.measure,
    "get": get.measure,
    "list": listing.measure,
    "comprehensive": comprehensive.measure,
    "burst": burst.measure,
    "webhook": webhook.measure,
    "fleet": fleet.measure,
    "memory": memory.measure,
    "restart": restart.measure,
    "recovery": recovery.measure,
    "jobs": jobs.measure,
    "idle": idle.measure,
    "leases": leases.measure,
    "rental": rental.measure,
    "streams": streams.measure,
    "replicas": replicas.measure,
    "growth": growth.measure,
    "costs": costs.measure,
    "meter": metering.measure,
}
