"""A durable create with traces, beside the same without."""

from __future__ import annotations

from dataclasses import replace

from bench.environment import BenchEnvironment, call, ready, take_turns, wish
from bench.report import Line
from bench.rows.requests.create import create_orders

CPU_RATIO_MAX = 1.10
NOTE = (
    "ours: every rental is traced, and its spans are sent to a collector that takes them; baseline: the same "
    "service without traces; the ratio is that of CPU"
)


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    # In shorter turns, and more of them: what is to be told is less than what a busy machine does meanwhile.
    scale = bench_env.scale
    bench_env = replace(
        bench_env,
        # It numbers its files from the beginning.
        directory=bench_env.place("traces"),
        scale=replace(scale, rounds=scale.rounds * 4, round_s=scale.round_s / 4),
    )
    orders = create_orders(bench_env)
    async with (
        bench_env.cloud() as cloud,
        bench_env.cloud() as other_cloud,
        bench_env.bare("collector", bench_env.place("collector")) as collector,
        bench_env.ours(cloud, {"GPUHERD_OTLP_ENDPOINT": collector.url}) as traced,
        bench_env.ours(other_cloud) as plain,
    ):
        for server in (traced, plain):
            await ready(server)
            await call(server, "POST", "/api/instances", wish("first"))
        on, off = await take_turns(
            bench_env,
            (traced, replace(orders, port=traced.port)),
            (plain, replace(orders, port=plain.port)),
        )
    ratio = on.cpu_us / off.cpu_us
    return [
        Line("durable create with traces", str(on), str(off), ratio, "≤ 1.10×", ratio <= CPU_RATIO_MAX, NOTE)
    ]
