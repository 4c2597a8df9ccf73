"""A fleet with default settings: many machines that begin to run within a minute, and many wanted at once.

Says which of our own limits binds, because a fleet is as fast as that one allows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from bench.environment import BenchEnvironment, call, ready, until, wish
from bench.processes import Server
from bench.report import Line, percentile
from bench.rows.webhook import P50_S_MAX, P99_S_MAX, READY, Receiver, receiving

SPEED = 4.0
LISTS_MAX = 30
# All machines usable within so long of the time that a boot takes.
AT_ONCE_S_MAX = 60.0
# The defaults, which this row is about.
CALLS_PER_MINUTE, CALLS_BURST = 300, 60
PAGES_PER_MINUTE, PAGES_BURST = 60, 15
# From so much of a limit on, it is what holds us up.
BINDS_FROM = 0.9
LIMIT_S = 300.0


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    return [*await _in_a_minute(bench_env), await _at_once(bench_env)]


async def _in_a_minute(bench_env: BenchEnvironment) -> list[Line]:
    count, spacing_s = bench_env.scale.fleet, bench_env.scale.fleet_spacing_s
    async with (
        receiving() as receiver,
        bench_env.cloud(speed=SPEED) as cloud,
        bench_env.ours(cloud) as server,
    ):
        await ready(server)
        # Those of the start belong to no minute of renting.
        before = await call(cloud, "GET", "/_bench/calls")
        began_s = time.perf_counter()
        ids = []
        for n in range(count):
            body = wish(f"fleet-{n}", webhookUrl=receiver.url)
            ids.append((await call(server, "POST", "/api/instances", body))["id"])
            await asyncio.sleep(max(0.0, began_s + (n + 1) * spacing_s - time.perf_counter()))
        await _until_all_ready(receiver, count)
        minutes = (time.perf_counter() - began_s) / 60
        made = await call(cloud, "GET", "/_bench/calls")
        calls = {endpoint: count - before.get(endpoint, 0) for endpoint, count in made.items()}
        waits_s = await _waits_s(server, cloud, receiver, ids)
    p50, p99, lists = percentile(waits_s, 50), percentile(waits_s, 99), calls["list"] / minutes
    name = f"cloud says running → webhook, {count} machines in a minute"
    return [
        Line(
            f"{name}, p50",
            f"{p50:.2f} s",
            "",
            None,
            "< 2 s",
            p50 < P50_S_MAX,
            "default settings, until instance.ready; "
            f"{limits_used(calls, minutes)}; simulator at speed {SPEED:g}",
        ),
        Line(f"{name}, p99", f"{p99:.2f} s", "", None, "< 4 s", p99 < P99_S_MAX),
        Line("lists a minute meanwhile", f"{lists:.0f}", "", None, "≤ 30", lists <= LISTS_MAX),
    ]


async def _at_once(bench_env: BenchEnvironment) -> Line:
    count = bench_env.scale.burst
    async with (
        receiving() as receiver,
        bench_env.cloud(speed=bench_env.scale.burst_speed) as cloud,
        bench_env.ours(cloud) as server,
    ):
        await ready(server)
        began, began_s = time.time(), time.perf_counter()
        bodies = [wish(f"at-once-{n}", webhookUrl=receiver.url) for n in range(count)]
        made = await asyncio.gather(*(call(server, "POST", "/api/instances", body) for body in bodies))
        await _until_all_ready(receiver, count)
        usable_s = time.perf_counter() - began_s
        calls = await call(cloud, "GET", "/_bench/calls")
        truth = await call(cloud, "GET", "/_bench/running")
        details = [await call(server, "GET", f"/api/instances/{it['id']}") for it in made]
    ran_s = max(truth[it["cloudInstanceId"]] for it in details) - began
    beyond_s = usable_s - min(ran_s, usable_s)
    limits = limits_used(calls, usable_s / 60)
    return Line(
        f"{count} at once, all usable after",
        f"{usable_s:.0f} s",
        f"{ran_s:.0f} s",
        usable_s / ran_s,
        "boot + 60 s",
        usable_s <= bench_env.scale.boot_s + AT_ONCE_S_MAX,
        f"default settings; the last machine ran {beyond_s:.1f} s before; {limits}; "
        "baseline: when the last machine began to run",
    )


async def _until_all_ready(receiver: Receiver, count: int) -> None:
    async def all_ready() -> bool:
        return sum(kind == READY for _, kind in receiver.got) >= count

    await until(all_ready, every_s=0.1, limit_s=LIMIT_S)


async def _waits_s(server: Server, cloud: Server, receiver: Receiver, ids: list[str]) -> list[float]:
    truth = await call(cloud, "GET", "/_bench/running")
    details = [await call(server, "GET", f"/api/instances/{it}") for it in ids]
    return [receiver.got[it["id"], READY] - truth[it["cloudInstanceId"]] for it in details]


def limits_used(calls: Mapping[str, int], minutes: float) -> str:
    """Say how much of each limit was used, and which of them binds."""
    of_calls = sum(calls.values()) / (CALLS_PER_MINUTE * minutes + CALLS_BURST)
    of_pages = calls.get("list", 0) / (PAGES_PER_MINUTE * minutes + PAGES_BURST)
    binding = [
        name
        for name, used in (("NOVITA_RATE_LIMIT", of_calls), ("GPUHERD_WATCH_BUDGET", of_pages))
        if used >= BINDS_FROM
    ]
    return (
        f"{of_calls:.0%} of NOVITA_RATE_LIMIT and {of_pages:.0%} of GPUHERD_WATCH_BUDGET used: "
        f"{' and '.join(binding) + ' binds' if binding else 'neither binds'}"
    )
