"""A page of 100 instances out of many, beside the same page when there are no more than 100."""

from __future__ import annotations

from bench.environment import LIMITS_OFF, BenchEnvironment, ready, take_turns
from bench.load import Orders
from bench.processes import AUTH, Server
from bench.report import Line

MS_MAX = 10
RATIO_MAX = 1.5


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    many, few = await bench_env.seeded(bench_env.scale.many), await bench_env.seeded(bench_env.scale.few)
    # No second list of ten thousand machines shall fall into the measurement.
    calm = {**LIMITS_OFF, "INSTANCE_POLL_INTERVAL": "600"}
    async with (
        bench_env.cloud(seeded=many) as cloud_of_many,
        bench_env.cloud(seeded=few) as cloud_of_few,
        bench_env.ours(cloud_of_many, calm, seeded=many) as large,
        bench_env.ours(cloud_of_few, calm, seeded=few) as small,
    ):
        for server in (large, small):
            await ready(server)
        ours, baseline = await take_turns(
            bench_env, (large, _orders(bench_env, large)), (small, _orders(bench_env, small))
        )
    ratio = ours.p50_ms / baseline.p50_ms
    return [
        Line(
            f"list page of 100 out of {bench_env.scale.many:,}, p50",
            f"{ours.p50_ms:.1f} ms, {ours.cpu_us:,.0f} µs CPU",
            f"{baseline.p50_ms:.1f} ms, {baseline.cpu_us:,.0f} µs CPU",
            ratio,
            "< 10 ms, ≤ 1.5×",
            ours.p50_ms < MS_MAX and ratio <= RATIO_MAX,
            f"one caller; baseline: ours with {bench_env.scale.few} instances; "
            f"p99 {ours.p99_ms:.1f} ms against {baseline.p99_ms:.1f} ms",
        )
    ]


def _orders(bench_env: BenchEnvironment, server: Server) -> Orders:
    seconds = bench_env.scale.round_s / 2
    return Orders(port=server.port, path="/api/instances?limit=100", headers=AUTH, seconds=seconds)
