"""A process killed with a large herd, and what it missed meanwhile: how soon everybody hears of it.

With default settings, over HTTP, to a receiver that hears of everything. While the process is down, all
machines that were on their way begin to run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing

from bench.environment import BenchEnvironment, call, ready, until
from bench.processes import Server
from bench.report import Line
from bench.rows.fleet import limits_used
from bench.rows.webhook import READY, Receiver, receiving
from bench.usage import cpu_s

FIRST_S_MAX, LAST_S_MAX = 5.0, 20.0
LIMIT_S = 240.0


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    many, moving = bench_env.scale.many, bench_env.scale.moving
    seeded = await bench_env.seeded(many, moving)
    async with receiving() as receiver, bench_env.cloud(seeded=seeded) as cloud:
        # Leaving the block kills it, as `kill -9` does.
        async with bench_env.ours(cloud, seeded=seeded) as killed:
            await ready(killed)
            await call(killed, "POST", "/api/webhooks/endpoints", {"url": receiver.url, "events": [READY]})
            await _until_at_work(killed, many)
        await call(cloud, "POST", "/_bench/finish-pulls")
        before = await call(cloud, "GET", "/_bench/calls")
        async with bench_env.ours(cloud, after=killed) as server:
            await until(_told(receiver, moving), every_s=0.05, limit_s=LIMIT_S)
            used_s = cpu_s(server.pid)
        after = await call(cloud, "GET", "/_bench/calls")
    waits_s = sorted(at - server.spawned_at for at in receiver.got.values())
    calls = {name: count - before.get(name, 0) for name, count in after.items()}
    first_s, last_s = waits_s[0], waits_s[-1]
    name = f"kill -9 with {many:,}, {moving:,} moving:"
    return [
        Line(
            f"{name} first webhook",
            f"{first_s:.1f} s",
            "",
            None,
            f"< {FIRST_S_MAX:g} s",
            first_s < FIRST_S_MAX,
            "default settings; since the process was started again, interpreter and imports included",
        ),
        Line(
            f"{name} last webhook",
            f"{last_s:.1f} s",
            "",
            None,
            f"< {LAST_S_MAX:g} s",
            last_s < LAST_S_MAX,
            f"{limits_used(calls, last_s / 60)}; {calls.get('list', 0)} pages of lists, "
            f"{calls.get('get', 0)} gets; {used_s:.1f} s CPU until then",
        ),
    ]


async def _until_at_work(server: Server, many: int) -> None:
    """Wait until turns are under way, so that the kill meets some of them, and all machines have been seen.

    The first list ever opens a span of cost for each: that is part of an upgrade, not of a kill.
    """
    path = server.directory / "data" / "gpuherd.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:

        async def begun() -> bool:
            (micros,) = connection.execute("SELECT min(processed_at) FROM job").fetchone()
            (metered,) = connection.execute("SELECT count(*) FROM meter").fetchone()
            return micros is not None and metered >= many

        await until(begun, every_s=0.05)


def _told(receiver: Receiver, count: int) -> Callable[[], Awaitable[bool]]:
    async def all_told() -> bool:
        return len(receiver.got) >= count

    return all_told
