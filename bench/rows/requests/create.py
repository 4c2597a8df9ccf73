"""A durable create through the whole stack, beside a bare writer that commits what is waiting together."""

from __future__ import annotations

import json
from dataclasses import replace

from bench.environment import BenchEnvironment, call, ready, take_turns, wish
from bench.load import Orders
from bench.processes import AUTH
from bench.report import Line

CALLERS = 64
RATIO_MIN = 0.35
PER_S_MIN = 800
P99_MS_MAX = 100

NOTE = (
    "default settings, so the background renting is held to 5 upstream calls a second and runs beside the "
    "creates; key check, request log (to a file) and metrics are on. Baseline: Starlette handler, raw "
    "sqlite3, three rows each and one commit for all that wait"
)


def create_orders(bench_env: BenchEnvironment) -> Orders:
    """Return the creates that many callers make at once."""
    return Orders(
        port=0,
        path="/api/instances",
        method="POST",
        headers=AUTH,
        body=json.dumps(wish("bench")),
        callers=CALLERS,
        seconds=bench_env.scale.round_s,
    )


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    orders = create_orders(bench_env)
    async with (
        bench_env.cloud() as cloud,
        bench_env.ours(cloud) as server,
        bench_env.bare("create", bench_env.place("bare-db") / "bare.db") as bare,
    ):
        await ready(server)
        # The catalogue is known from here on, as in a service that has run for a minute.
        await call(server, "POST", "/api/instances", wish("first"))
        ours, baseline = await take_turns(
            bench_env,
            (server, replace(orders, port=server.port)),
            (bare, replace(orders, port=bare.port, path="/")),
        )
    ratio = ours.per_s / baseline.per_s
    note = f"{NOTE}. By CPU alone the ratio is {baseline.cpu_us / ours.cpu_us:.2f}"
    ms = f"{ours.p99_ms:.0f} ms", f"{baseline.p99_ms:.0f} ms"
    return [
        Line(
            "durable create, 64 callers", str(ours), str(baseline), ratio, "≥ 0.35×", ratio >= RATIO_MIN, note
        ),
        Line(
            "durable create, rate", f"{ours.per_s:,.0f}/s", "", None, "≥ 800/s quiet", ours.per_s >= PER_S_MIN
        ),
        Line("durable create, p99", *ms, None, "< 100 ms", ours.p99_ms < P99_MS_MAX),
    ]
