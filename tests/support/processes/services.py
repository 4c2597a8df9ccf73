"""Real processes on loopback: a simulated Novita, and gpuherd itself, started, killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.processes.fork_server import CAN_FORK, FORK_SERVER, ForkedProcess

KEY = "ghk_test_admin_key_0123456789"
BOOT_LIMIT_S = 120.0
PR_SET_PDEATHSIG = 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    """Ask the kernel to end this child when the test run ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """One `gpuherd …` process; its output goes to a file, for whoever has to find out why.

    `forked=False` starts it as a shell does, from nothing: for a test of that start.
    """

    def __init__(self, words: list[str], env: Mapping[str, str], log: Path, *, forked: bool = True):
        self._words = words
        self._env = {"PATH": os.environ["PATH"], "HOME": str(log.parent), **env}
        self.log = log
        self._forked = forked and CAN_FORK
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None

    async def start(self) -> None:
        with self.log.open("ab") as out, Path(os.devnull).open() as nothing:
            if self._forked:
                files = (nothing.fileno(), out.fileno(), out.fileno())
                self._process = FORK_SERVER.make("gpuherd", self._words, self._env, files, self.log.parent)
                return
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gpuherd",
                *self._words,
                env=self._env,
                stdout=out,
                stderr=out,
                cwd=self.log.parent,
                preexec_fn=_die_with_parent,
            )

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        assert self._process is not None
        self.send(number)
        return await self.wait()

    @property
    def exit_code(self) -> int | None:
        if isinstance(self._process, ForkedProcess):
            return self._process.poll()
        return None if self._process is None else self._process.returncode

    async def wait(self) -> int:
        assert self._process is not None
        if isinstance(self._process, ForkedProcess):
            return await self._process.ended()
        return await self._process.wait()


class Novita:
    """A simulated Novita in a process of its own: it survives whatever happens to gpuherd."""

    def __init__(self, directory: Path, *, speed: float = 50.0):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["simulator", "--port", str(self.port), "--speed", str(speed)]
        self.process = Process(words, {}, directory / "simulator.log")

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        async with aiohttp.ClientSession() as session:
            reply = await session.request(method, f"{self.url}/_simulator/{path}", json=body)
            text = await reply.text()
            assert reply.status < 300, text
            return json.loads(text) if text else None

    async def machines(self) -> list[dict[str, Any]]:
        """Return the machines that exist and cost or could cost money."""
        state = await self.control("GET", "state")
        return [it for it in state["machines"] if it["alive"]]


class Server:
    """gpuherd itself."""

    def __init__(self, directory: Path, novita: Novita, *words: str, **env: str):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data_dir = directory / "data"
        settings = {
            "NOVITA_API_KEY": "sk_test_canary_novita_key",
            "NOVITA_API_BASE_URL": novita.url,
            "NOVITA_RATE_LIMIT": "0",
            "GPUHERD_WATCH_BUDGET": "0",
            "GPUHERD_DATA_DIR": str(self.data_dir),
            "GPUHERD_PORT": str(self.port),
            "GPUHERD_ADMIN_KEY": KEY,
            "GPUHERD_ALLOW_PRIVATE_TARGETS": "127.0.0.0/8",
            "GPUHERD_CREATE_SETTLE": "2",
            "GPUHERD_FAST_POLL_INTERVAL": "0.2",
            "GPUHERD_BREAKER_RECOVERY": "0.5",
            "REQUEST_TIMEOUT": "1",
            "WEBHOOK_SECRET": "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LTAxMjM0NTY3",
            **env,
        }
        self.process = Process(["serve", *words], settings, directory / "server.log")

    async def start(self) -> None:
        """Start, and wait until requests are taken."""
        await self.process.start()
        await self.ready()

    async def ready(self) -> None:
        async with asyncio.timeout(BOOT_LIMIT_S), aiohttp.ClientSession() as session:
            while True:
                assert self.process.exit_code is None, self.process.log.read_text()[-2000:]
                with contextlib.suppress(aiohttp.ClientError):
                    if (await session.get(f"{self.url}/readyz")).status == 200:
                        return
                await asyncio.sleep(0.05)

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        auth = {"Authorization": f"Bearer {KEY}", **headers}
        async with aiohttp.ClientSession() as session:
            reply = await session.request(method, f"{self.url}{path}", json=body, headers=auth)
            return reply.status, await reply.json(content_type=None)

    async def page(self, path: str) -> str:
        """Return what is not JSON."""
        async with aiohttp.ClientSession() as session:
            reply = await session.get(f"{self.url}{path}", headers={"Authorization": f"Bearer {KEY}"})
            return await reply.text()

    async def instance(self, instance_id: str) -> dict[str, Any]:
        status, body = await self.call("GET", f"/api/instances/{instance_id}")
        assert status == 200, body
        return dict(body)

    async def until_settled(self, instance_id: str, limit_s: float = 90.0) -> dict[str, Any]:
        """Wait until an instance is usable or has failed."""
        async with asyncio.timeout(limit_s):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    it = await self.instance(instance_id)
                    if it["usable"] or it["status"] == "failed":
                        return it
                await asyncio.sleep(0.1)


class Receiver:
    """A webhook receiver; what it got outlives every crash of the sender."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Mapping[str, str], bytes]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.got.append((request.headers["webhook-id"], dict(request.headers), body))
        return web.Response()

    def types(self, instance_id: str) -> list[str]:
        """Return the event types that came for an instance, each once, in order of arrival."""
        found = [json.loads(body) for _, _, body in self.got]
        return list(dict.fromkeys(it["type"] for it in found if it["data"]["instanceId"] == instance_id))


@contextlib.asynccontextmanager
async def taking_posts(
    path: str, take: Callable[[web.Request], Awaitable[web.Response]]
) -> AsyncIterator[str]:
    """Serve one path in this process, and give the address before it."""
    app = web.Application()
    app.router.add_post(path, take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    it = Receiver()
    async with taking_posts("/hook", it.take) as url:
        it.url = f"{url}/hook"
        yield it
