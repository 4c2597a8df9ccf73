"""A gpuherd whose death can be planned, and which is started again after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp

from proof.chaos.kills.points import CRASH_AT_VARIABLE, END_POINTS, Kill
from tests.support.processes.fork_server import CAN_FORK, FORK_SERVER
from tests.support.processes.services import BOOT_LIMIT_S, Novita, Process, Server, _die_with_parent

ROOT = Path(__file__).parents[3]
# Names another service to be put to the test, for example one without a guard.
SOURCE_VARIABLE = "GPUHERD_SRC"
MODULE = "proof.chaos.kills.crashing_server"
# The service reaches its points within a few seconds of being ready, or not at all.
POINT_LIMIT_S = 15.0
# A lease or a budget must be over first.
END_POINT_LIMIT_S = 30.0


class KillableProcess(Process):
    """The same command, with the wrapping around it that can kill it."""

    def __init__(self, ordinary: Process):
        super().__init__(ordinary._words, ordinary._env, ordinary.log)
        self.crash_at = ""

    async def start(self) -> None:
        source = os.environ.get(SOURCE_VARIABLE)
        path = os.pathsep.join((source or str(ROOT / "src"), str(ROOT)))
        env = {**self._env, "PYTHONPATH": path, CRASH_AT_VARIABLE: self.crash_at}
        with self.log.open("ab") as out, Path(os.devnull).open() as nothing:
            if source is None and CAN_FORK:
                files = (nothing.fileno(), out.fileno(), out.fileno())
                self._process = FORK_SERVER.make(MODULE, self._words, env, files, self.log.parent)
                return
            # Another source is to be loaded than the one that a forked process has loaded already.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                MODULE,
                *self._words,
                env=env,
                stdout=out,
                stderr=out,
                cwd=self.log.parent,
                preexec_fn=_die_with_parent,
            )


class KillableServer(Server):
    """The service with fast settings, and a list of how long each start took."""

    def __init__(self, directory: Path, novita: Novita, **env: str):
        fast = {
            "GPUHERD_CREATE_SETTLE": "1",
            "GPUHERD_FAST_POLL_INTERVAL": "0.1",
            "INSTANCE_POLL_INTERVAL": "0.5",
            "REQUEST_TIMEOUT": "2",
            "GPUHERD_BUDGET_LEAD": "4",
            "GPUHERD_BUDGET_HORIZON": "5",
            # An heir is made as soon as two lists have shown the notice.
            "GPUHERD_RECLAIM_NOTICE": "0",
        }
        super().__init__(directory, novita, **{**fast, **env})
        self.process: KillableProcess = KillableProcess(self.process)
        self.boots_s: list[float] = []
        self.ready_at_s: list[float] = []

    async def start(self) -> None:
        """Start in peace, and wait until requests are taken."""
        self.process.crash_at = ""
        begun = time.monotonic()
        await super().start()
        self.boots_s.append(time.monotonic() - begun)
        self.ready_at_s.append(time.time())

    async def run_until_killed(self, kill: Kill) -> bool:
        """Start, and die as planned; tell whether it died at the point, if it was to."""
        self.process.crash_at = kill.word
        await self.process.start()
        waiting = asyncio.create_task(self._wait_for_point(kill))
        exit_task = asyncio.create_task(self.process.wait())
        await asyncio.wait((waiting, exit_task), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not exit_task.done():
            await self.process.end(signal.SIGKILL)
            return not kill.point
        # Whoever ended by himself did not die, and somebody should know why.
        assert self.process.exit_code == -signal.SIGKILL, self.process.log.read_text()[-2000:]
        return bool(kill.point)

    async def _wait_for_point(self, kill: Kill) -> None:
        if kill.point or kill.when_ready:
            await self._answering()
            self.ready_at_s.append(time.time())
        limit_s = END_POINT_LIMIT_S if kill.point in END_POINTS else POINT_LIMIT_S
        await asyncio.sleep(limit_s if kill.point else kill.after_s)

    async def _answering(self) -> None:
        async with asyncio.timeout(BOOT_LIMIT_S), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    if (await session.get(f"{self.url}/readyz")).status == 200:
                        return
                await asyncio.sleep(0.05)
