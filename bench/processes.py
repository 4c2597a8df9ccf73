"""The processes that a benchmark needs, on loopback: ours, the baseline and the simulated cloud."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

KEY = "ghk_bench_admin_key_0123456789"
AUTH = {"Authorization": f"Bearer {KEY}"}
BOOT_LIMIT_S = 90.0
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Server:
    """A process that listens."""

    pid: int
    port: int
    # By the wall clock, so that it can be compared with times in a database.
    spawned_at: float
    directory: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def running(
    words: list[str], log: Path, port: int, env: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Run `python -m <words>` until the block ends; it must listen on `port`."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),
        "PYTHONPATH": str(ROOT),
        **(env or {}),
    }
    spawned_at = time.time()
    with log.open("wb") as out:
        # Each in a directory without a gpuherd.toml, so that nobody's own settings change the results.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *words, env=environment, stdout=out, stderr=out, cwd=log.parent
        )
    try:
        await _listening(process, port, log)
        yield Server(process.pid, port, spawned_at, log.parent)
    finally:
        # All it has written is thrown away, so there is nothing to end gracefully.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    async with asyncio.timeout(BOOT_LIMIT_S):
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"a process ended before it listened:\n{_end_of(log)}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


def _end_of(log: Path) -> str:
    return log.read_text()[-3000:]
