"""Where a benchmark takes place: a directory for its files, its sizes, and the servers it asks for."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.load import Orders, Seen, load
from bench.processes import AUTH, KEY, Server, free_port, running
from bench.report import median
from bench.seeding import Seeded, seed
from bench.usage import cpu_s

PRODUCT = "RTX 4090 24GB"
TEMPLATE = "101"
LIMITS_OFF = {"NOVITA_RATE_LIMIT": "0", "GPUHERD_WATCH_BUDGET": "0"}


@dataclass(frozen=True)
class Scale:
    """How much of everything. The defaults are what the promises are about."""

    rounds: int = 3
    round_s: float = 3.0
    many: int = 10_000
    few: int = 100
    moving: int = 1_000
    burst: int = 200
    burst_speed: float = 1.0
    rentals: int = 500
    webhooks: int = 20
    webhook_spacing_s: float = 2.0
    fleet: int = 100
    fleet_spacing_s: float = 0.6
    # What a boot takes at the speed of a burst.
    boot_s: float = 26.0
    idle_s: float = 20.0
    wishes: int = 300
    replica_rounds: int = 3
    spans: int = 1_000_000


TINY = Scale(
    rounds=1,
    round_s=0.3,
    many=300,
    few=100,
    moving=20,
    burst=5,
    burst_speed=20.0,
    rentals=5,
    webhooks=2,
    webhook_spacing_s=0.2,
    fleet=3,
    fleet_spacing_s=0.2,
    idle_s=1.0,
    wishes=20,
    replica_rounds=1,
    spans=2_000,
)


@dataclass(frozen=True)
class Measured:
    """The medians of some rounds of load, with what each request cost the server."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.per_s:,.0f}/s, {self.cpu_us:,.0f} µs CPU"


@dataclass
class BenchEnvironment:
    """One run of some benchmarks."""

    directory: Path
    scale: Scale = field(default_factory=Scale)
    _numbers: itertools.count[int] = field(default_factory=itertools.count, init=False)
    _seeded: dict[tuple[int, int], Seeded] = field(default_factory=dict, init=False)

    def place(self, name: str) -> Path:
        """Return a new, empty directory."""
        path = self.directory / f"{next(self._numbers):02d}-{name}"
        path.mkdir()
        return path

    async def seeded(self, instances: int, moving: int = 0) -> Seeded:
        """Return a prepared world and database, made once for all rows that want the same."""
        key = (instances, moving)
        if key not in self._seeded:
            self._seeded[key] = await seed(self.place(f"seed-{instances}-{moving}"), instances, moving)
        return self._seeded[key]

    def cloud(
        self,
        *,
        speed: float = 1.0,
        seeded: Seeded | None = None,
        names: Path | None = None,
        latency_s: float = 0.0,
    ) -> AbstractAsyncContextManager[Server]:
        """Run a simulated Novita."""
        port = free_port()
        words = ["bench.cloud", "--port", str(port), "--speed", str(speed), "--latency-s", str(latency_s)]
        if seeded is not None:
            words += ["--world", str(seeded.world)]
        if names is not None:
            words += ["--names", str(names)]
        return running(words, self.place("cloud") / "log", port)

    @contextlib.asynccontextmanager
    async def ours(
        self,
        cloud: Server,
        env: Mapping[str, str] | None = None,
        *,
        seeded: Seeded | None = None,
        after: Server | None = None,
        role: str = "all",
    ) -> AsyncIterator[Server]:
        """Run `gpuherd serve` with default settings except what `env` says, on a database of its own.

        It may be that of a server which has ended: `after`.
        """
        place, port = self.place("ours") if after is None else after.directory, free_port()
        if seeded is not None:
            await asyncio.to_thread(shutil.copytree, seeded.data_dir, place / "data")
        settings = {
            "NOVITA_API_KEY": "sk_bench",
            "NOVITA_API_BASE_URL": cloud.url,
            "GPUHERD_DATA_DIR": str(place / "data"),
            "GPUHERD_PORT": str(port),
            "GPUHERD_ADMIN_KEY": KEY,
            "GPUHERD_ALLOW_PRIVATE_TARGETS": "127.0.0.0/8",
            **(env or {}),
        }
        words = ["gpuherd", "serve", "--role", role]
        async with running(words, place / "log", port, settings) as server:
            yield server

    def bare(self, kind: str, path: Path) -> AbstractAsyncContextManager[Server]:
        """Run a baseline."""
        port = free_port()
        return running(["bench.bare", str(port), kind, str(path)], self.place("bare") / "log", port)


async def take_turns(
    bench_env: BenchEnvironment, ours: tuple[Server, Orders], baseline: tuple[Server, Orders]
) -> tuple[Measured, Measured]:
    """Load both in turns, so that whatever else this machine does hits both alike; return the medians."""
    await asyncio.gather(_warm_up(ours), _warm_up(baseline))
    of_ours: list[tuple[Seen, float]] = []
    of_baseline: list[tuple[Seen, float]] = []
    for number in range(bench_env.scale.rounds):
        # Each is first as often as the other: whoever comes second may find the machine warm, or tired.
        for it in (ours, baseline) if number % 2 == 0 else (baseline, ours):
            (of_ours if it is ours else of_baseline).append(await _round(*it))
    return _medians(of_ours), _medians(of_baseline)


async def _warm_up(it: tuple[Server, Orders]) -> None:
    await load(Orders(**{**vars(it[1]), "seconds": 0.5}))


async def _round(server: Server, orders: Orders) -> tuple[Seen, float]:
    before_s = cpu_s(server.pid)
    seen = await load(orders)
    return seen, (cpu_s(server.pid) - before_s) / seen.count * 1e6


def _medians(rounds: list[tuple[Seen, float]]) -> Measured:
    return Measured(
        per_s=median([seen.per_s for seen, _ in rounds]),
        p50_ms=median([seen.p50_ms for seen, _ in rounds]),
        p99_ms=median([seen.p99_ms for seen, _ in rounds]),
        cpu_us=median([cpu_us for _, cpu_us in rounds]),
    )


async def call(server: Server, method: str, path: str, body: Any = None) -> Any:
    """Make one call to ours or to the cloud and return its JSON."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, server.url + path, json=body, headers=AUTH) as reply,
    ):
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path} answered {reply.status}: {await reply.text()}")
        return await reply.json(content_type=None)


def wish(name: str, **more: Any) -> dict[str, Any]:
    """Return the body of a create."""
    return {"name": name, "productName": PRODUCT, "templateId": TEMPLATE, **more}


async def ready(server: Server) -> None:
    """Wait until the service says that it works."""

    async def says_so() -> bool:
        with contextlib.suppress(RuntimeError, aiohttp.ClientError):
            await call(server, "GET", "/readyz")
            return True
        return False

    await until(says_so, every_s=0.02)


async def until(condition: Callable[[], Awaitable[bool]], *, every_s: float, limit_s: float = 90.0) -> None:
    """Look again and again until something is so; what takes too long fails the row."""
    async with asyncio.timeout(limit_s):
        while True:
            if await condition():
                return
            await asyncio.sleep(every_s)
