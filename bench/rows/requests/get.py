"""One instance read again and again, beside a bare Starlette endpoint that returns the same bytes."""

from __future__ import annotations

from dataclasses import replace

import aiohttp

from bench.environment import BenchEnvironment, ready, take_turns
from bench.load import Orders
from bench.processes import AUTH
from bench.report import Line

CALLERS = 16
RATIO_MIN = 0.5
PER_S_MIN = 4000


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    seeded = await bench_env.seeded(bench_env.scale.few)
    path = f"/api/instances/{seeded.instance_id}"
    kept = bench_env.place("bytes") / "details.json"
    async with bench_env.cloud(seeded=seeded) as cloud, bench_env.ours(cloud, seeded=seeded) as server:
        await ready(server)
        async with aiohttp.ClientSession(headers=AUTH, raise_for_status=True) as session:
            kept.write_bytes(await (await session.get(server.url + path)).read())
        async with bench_env.bare("bytes", kept) as bare:
            orders = Orders(port=0, path="/", headers=AUTH, callers=CALLERS, seconds=bench_env.scale.round_s)
            ours, baseline = await take_turns(
                bench_env,
                (server, replace(orders, port=server.port, path=path)),
                (bare, replace(orders, port=bare.port)),
            )
    ratio = ours.per_s / baseline.per_s
    note = (
        f"key check, request log (to a file) and metrics are on; by CPU alone the ratio is "
        f"{baseline.cpu_us / ours.cpu_us:.2f}; p99 {ours.p99_ms:.1f} ms against {baseline.p99_ms:.1f} ms"
    )
    return [
        Line("GET one, 16 callers", str(ours), str(baseline), ratio, "≥ 0.50×", ratio >= RATIO_MIN, note),
        Line("GET one, rate", f"{ours.per_s:,.0f}/s", "", None, "≥ 4,000/s", ours.per_s >= PER_S_MIN),
    ]
