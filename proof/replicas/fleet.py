"""The replicas of one run: each on a port and in a directory of its own, all on one database."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from proof.chaos.kills.points import HEIR_POINTS, LEASE_POINTS, METER_POINTS
from proof.replicas.pausing_server import ARMED, BEFORE_WATCH_COMMIT, FREEZE_AT, LISTED, WORKERS
from proof.replicas.processes import ModuleProcess
from tests.support.processes.services import Novita, Server

MODULE = "proof.replicas.pausing_server"
SETTLE_S = 2.0
FAST = {
    "GPUHERD_CREATE_SETTLE": str(SETTLE_S),
    "GPUHERD_FAST_POLL_INTERVAL": "0.2",
    "INSTANCE_POLL_INTERVAL": "0.5",
    "REQUEST_TIMEOUT": "2",
    # An heir is made as soon as two lists have shown the notice.
    "GPUHERD_RECLAIM_NOTICE": "0",
}


class Replica(Server):
    """One `gpuherd serve` among several."""

    def __init__(self, directory: Path, novita: Novita, database_url: str):
        directory.mkdir(parents=True)
        super().__init__(directory, novita, GPUHERD_DATABASE_URL=database_url, **FAST)
        self.directory = directory
        self.process: ModuleProcess = ModuleProcess([MODULE, "serve"], self.process._env, self.process.log)
        # In the order of the starts, from spawn to ready.
        self.boots_s: list[float] = []

        # Which of its processes has answered.
        self._ready_pid = 0

    async def spawn(self, freeze_at: str = "") -> None:
        """Start, without waiting for anything."""
        self.process.more_env = {FREEZE_AT: freeze_at}
        await self.process.start()

    async def start(self, freeze_at: str = "") -> None:
        begun_s = time.monotonic()
        await self.spawn(freeze_at)
        await self.ready()
        self.boots_s.append(time.monotonic() - begun_s)

    async def ready(self) -> None:
        pid = self.process.pid
        await super().ready()
        self._ready_pid = pid

    @property
    def serves(self) -> bool:
        """Tell whether it is up: not dead, not standing still, and no longer on its way."""
        it = self.process
        return it.is_alive and it.pid == self._ready_pid and not it.is_frozen

    @property
    def workers(self) -> list[str]:
        """By which ids the queue knows it, all its lives together."""
        path = self.directory / WORKERS
        return path.read_text().split() if path.exists() else []

    @property
    def looked_at(self) -> float:
        """When it last listed the cloud."""
        path = self.directory / LISTED
        return path.stat().st_mtime if path.exists() else 0.0


class Fleet:
    """All of them."""

    def __init__(self, directory: Path, novita: Novita, database_url: str, count: int):
        self.database_url = database_url
        # Set when nothing strikes them any more.
        self.calm = asyncio.Event()
        self.replicas = [Replica(directory / f"replica-{n}", novita, database_url) for n in range(count)]

    async def start(self, freeze_at: str = "") -> None:
        """Start all together, on a database that may be empty; one of them may stop itself somewhere."""
        await asyncio.gather(*(it.start(freeze_at) for it in self.replicas))
        # Nobody knows beforehand who holds the watch.
        point = freeze_at.partition(":")[0]
        anybodys = (BEFORE_WATCH_COMMIT, *METER_POINTS, *LEASE_POINTS, *HEIR_POINTS)
        armed = self.replicas if point in anybodys else self.replicas[:1]
        for it in armed:
            (it.directory / ARMED).touch()

    def disarm(self) -> None:
        """One was enough."""
        for it in self.replicas:
            (it.directory / ARMED).unlink(missing_ok=True)

    @property
    def any_serves(self) -> bool:
        return any(it.serves for it in self.replicas)

    async def end(self) -> list[int]:
        """Ask all to end, and return how they did; whoever does not listen is killed."""
        for it in self.replicas:
            it.process.thaw()
        return await asyncio.gather(*(_end(it) for it in self.replicas))

    async def kill(self) -> None:
        """End all processes that are left, whatever state they are in."""
        for it in self.replicas:
            if it.process.is_alive:
                await it.process.end(signal.SIGKILL)


def watch_holder(replicas: Sequence[Replica]) -> Replica | None:
    """Return whoever looked at the cloud last."""
    return max(replicas, key=lambda it: it.looked_at, default=None)


async def _end(replica: Replica) -> int:
    try:
        async with asyncio.timeout(30):
            return await replica.process.end(signal.SIGTERM)
    except TimeoutError:
        return await replica.process.end(signal.SIGKILL)
