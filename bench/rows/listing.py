"""A page of 100 instances out of many, beside the same page when there are no more than 100."""

from __future__ import annotations

from bench.load import Orders
from bench.processes import AUTH, Server
from bench.report import Line
from bench.stage import LIMITS_OFF, Stage, ready, take_turns

MS_MAX = 10
RATIO_MAX = 1.5


async def measure(stage: Stage) -> list[Line]:
    many, few = await stage.seeded(stage.scale.many), await stage.seeded(stage.scale.few)
    # No second list of ten thousand machines shall fall into the measurement.
    calm = {**LIMITS_OFF, "INSTANCE_POLL_INTERVAL": "600"}
    async with (
        stage.cloud(seeded=many) as cloud_of_many,
        stage.cloud(seeded=few) as cloud_of_few,
        stage.ours(cloud_of_many, calm, seeded=many) as large,
        stage.ours(cloud_of_few, calm, seeded=few) as small,
    ):
        for server in (large, small):
            await ready(server)
        ours, baseline = await take_turns(
            stage, (large, _orders(stage, large)), (small, _orders(stage, small))
        )
    ratio = ours.p50_ms / baseline.p50_ms
    return [
        Line(
            f"list page of 100 out of {stage.scale.many:,}, p50",
            f"{ours.p50_ms:.1f} ms, {ours.cpu_us:,.0f} µs CPU",
            f"{baseline.p50_ms:.1f} ms, {baseline.cpu_us:,.0f} µs CPU",
            ratio,
            "< 10 ms, ≤ 1.5×",
            ours.p50_ms < MS_MAX and ratio <= RATIO_MAX,
            f"one caller; baseline: ours with {stage.scale.few} instances; "
            f"p99 {ours.p99_ms:.1f} ms against {baseline.p99_ms:.1f} ms",
        )
    ]


def _orders(stage: Stage, server: Server) -> Orders:
    seconds = stage.scale.round_s / 2
    return Orders(port=server.port, path="/api/instances?limit=100", headers=AUTH, seconds=seconds)
