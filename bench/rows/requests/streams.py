"""Many open streams of events while instances come to life: who hears what, when, and what that costs."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from datetime import datetime

from bench.environment import LIMITS_OFF, BenchEnvironment, call, ready, until, wish
from bench.processes import KEY, Server
from bench.report import Line, percentile
from bench.usage import cpu_s, rss_mb

# Each leads to five events or so: accepted, planned, starting, running, ready.
CREATES_PER_S = 12
P99_S_MAX = 0.5
SPEED = 20.0
_ID = re.compile(rb"^id: (\d+)$", re.MULTILINE)
ASK = (
    b"GET /api/events HTTP/1.1\r\nHost: bench\r\nLast-Event-ID: %d\r\n"
    b"Authorization: Bearer " + KEY.encode() + b"\r\n\r\n"
)


@dataclass
class Listener:
    """One stream, read as cheaply as possible: the load must not be what is measured."""

    got: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)

    async def run(self, server: Server, last: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**22)
        writer.write(ASK % last)
        rest = b""
        while chunk := await reader.read(2**16):
            now = time.time()
            whole, _, rest = (rest + chunk).rpartition(b"\n\n")
            ids = [int(it) for it in _ID.findall(whole)]
            self.got += ids
            self.at += [now] * len(ids)


@dataclass(frozen=True)
class Phase:
    """What the server used while the same things happened."""

    cpu_percent: float
    rss_mb: float


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    count = bench_env.scale.streams
    async with bench_env.cloud(speed=SPEED) as cloud, bench_env.ours(cloud, LIMITS_OFF) as server:
        await ready(server)
        alone = await _drive(bench_env, server, "alone")
        first = await _last(server)
        listeners = [Listener() for _ in range(count)]
        tasks = [asyncio.create_task(it.run(server, first)) for it in listeners]
        await asyncio.sleep(1)
        with_streams = await _drive(bench_env, server, "heard")
        written = await _written(server, first)
        await _until_heard(listeners, len(written))
        for task in tasks:
            task.cancel()
    complete = sum(it.got == list(written) for it in listeners)
    late_s = [
        at - written[n] for it in listeners for n, at in zip(it.got, it.at, strict=True) if n in written
    ]
    p50, p99 = percentile(late_s, 50), percentile(late_s, 99)
    per_s = len(written) / bench_env.scale.streams_s
    return [
        Line(
            f"{count} event streams, {per_s:.0f} events a second, event → arrival, p99",
            f"{p99 * 1000:.0f} ms",
            "",
            None,
            "< 500 ms, all in order",
            p99 < P99_S_MAX and complete == count,
            f"{complete} of {count} streams got each of {len(written):,} events once and in order; "
            f"p50 {p50 * 1000:.0f} ms, from the event's own time, which is before its commit",
        ),
        Line(
            f"CPU of the server with {count} streams",
            f"{with_streams.cpu_percent:.0f} %, {with_streams.rss_mb:.0f} MB RSS",
            f"{alone.cpu_percent:.0f} %, {alone.rss_mb:.0f} MB RSS",
            with_streams.cpu_percent / max(alone.cpu_percent, 0.1),
            "",
            None,
            f"of one core; baseline: the same {CREATES_PER_S} creates a second with nobody listening",
        ),
    ]


async def _drive(bench_env: BenchEnvironment, server: Server, name: str) -> Phase:
    """Let instances come to life at a steady pace, until the last of them is quiet."""
    before_s, began_s = cpu_s(server.pid), time.perf_counter()
    total = max(1, round(bench_env.scale.streams_s * CREATES_PER_S))
    calls = []
    for n in range(total):
        await asyncio.sleep(max(0.0, began_s + n / CREATES_PER_S - time.perf_counter()))
        calls.append(asyncio.create_task(call(server, "POST", "/api/instances", wish(f"{name}-{n}"))))
    await asyncio.gather(*calls)
    spent_s, took_s = cpu_s(server.pid) - before_s, time.perf_counter() - began_s
    await _quiet(server)
    return Phase(spent_s / took_s * 100, rss_mb(server.pid))


async def _quiet(server: Server) -> None:
    seen = -1

    async def nothing_new() -> bool:
        nonlocal seen
        before, seen = seen, await _last(server)
        return before == seen

    await until(nothing_new, every_s=2.0)


async def _last(server: Server) -> int:
    return int((await call(server, "GET", "/api/events/history?limit=1"))["lastEventId"])


async def _written(server: Server, last: int) -> dict[int, float]:
    """Return every event since then, with its time, as the log has it."""
    found: dict[int, float] = {}
    while page := (await call(server, "GET", f"/api/events/history?limit=100&lastEventId={last}"))["events"]:
        found |= {it["id"]: datetime.fromisoformat(it["at"]).timestamp() for it in page}
        last = page[-1]["id"]
    return found


async def _until_heard(listeners: list[Listener], count: int) -> None:
    async def all_heard() -> bool:
        return all(len(it.got) >= count for it in listeners)

    await until(all_heard, every_s=0.1, limit_s=20.0)
