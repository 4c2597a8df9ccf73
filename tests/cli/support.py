"""A scripted API on loopback, a clock that never waits, and the whole command line on top of them."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from aiohttp import web
from click.testing import CliRunner, Result

from gpuherd.__main__ import mcp, serve
from gpuherd.entrypoints.cli.cli_app import build_cli
from gpuherd.entrypoints.cli.command_runner import CommandContext
from gpuherd.entrypoints.cli.instance_facts import Until, outcome_of
from gpuherd.settings_loading import parse_server_address

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
KEY = "key-of-sixteen-or-more"


@dataclass(frozen=True)
class SeenRequest:
    """One request that reached the fake."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """What the fake says: JSON, or raw bytes, or nothing at all."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    dropped: bool = False


Handler = Callable[[SeenRequest], Answer]
DROPPED = Answer(dropped=True)


def problem(status: int, code: str, title: str = "no", **more: Any) -> Answer:
    return Answer({"title": title, "status": status, "code": code, **more}, status)


def details(status: str = "creating", **more: Any) -> dict[str, Any]:
    """An instance as the API tells it, twenty seconds old."""
    base = {
        "id": "inst_1",
        "name": "train-1",
        "status": status,
        "goal": "running",
        "productName": "RTX 4090 24GB",
        "region": "CN-HK-01",
        "gpuNum": 1,
        "hourlyPrice": "0.35",
        "billingMode": "spot",
        "createdAt": (NOW - timedelta(seconds=20)).isoformat(),
        "estimatedReadyTime": (NOW + timedelta(minutes=3)).isoformat(),
        "usable": status == "ready",
    }
    return base | more


def accepted(**more: Any) -> dict[str, Any]:
    """The short answer to a create."""
    return {"id": "inst_1", "instanceId": "inst_1", "name": "train-1", "status": "creating", **more}


def operation(kind: str, state: str, *phases: str, **more: Any) -> dict[str, Any]:
    """An operation as the API tells it; its phases came ten seconds after each other."""
    return {
        "operationId": "op_1",
        "instanceId": "inst_1",
        "type": kind,
        "status": state,
        "phases": [
            {"phase": phase, "at": (NOW + timedelta(seconds=10 * n)).isoformat()}
            for n, phase in enumerate(phases)
        ],
        "error": None,
        **more,
    }


class Script:
    """Answers in order, whatever is asked; the last one for ever. An answer may be a function."""

    def __init__(self, *answers: Answer | dict[str, Any] | Handler) -> None:
        self._answers = list(answers)

    def __call__(self, seen: SeenRequest) -> Answer:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if callable(answer):
            answer = answer(seen)
        return answer if isinstance(answer, Answer) else Answer(answer)


class FakeApi:
    """Runs in a thread of its own, because a command blocks the one it is called in."""

    def __init__(self, handler: Handler | None = None) -> None:
        self.handler: Handler = handler or Script({})
        self.seen: list[SeenRequest] = []
        # Asked for at any moment by whoever waits on a terminal, so it is no part of a script.
        self.log: Answer = problem(409, "NO_MACHINE")
        self.port = _free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, *answers: Answer | dict[str, Any] | Handler) -> None:
        self.handler = Script(*answers)

    def start(self) -> None:
        self._run(self._start())

    def stop(self) -> None:
        self._run(self._stop())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        path = request.raw_path.partition("?")[0]
        body = json.loads(raw) if raw else None
        seen = SeenRequest(request.method, path, list(request.query.items()), request.headers, body)
        if path.endswith("/logs"):
            answer = self.log
        else:
            self.seen.append(seen)
            answer = self.handler(seen)
        if answer.dropped:
            assert request.transport is not None
            request.transport.close()
        raw = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        headers = {"Content-Type": "application/json", **_wait_headers(seen, answer), **answer.headers}
        return web.Response(body=raw, status=answer.status, headers=headers)


def _wait_headers(seen: SeenRequest, answer: Answer) -> dict[str, str]:
    """What the server says of a long poll that has ended without what was waited for."""
    until = dict(seen.query).get("wait")
    if until is None or answer.status != 200 or not isinstance(answer.body, dict):
        return {}
    is_over = outcome_of(answer.body, cast(Until, until)) is not None
    return {} if is_over else {"X-Wait-Timed-Out": "true"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class InstantClock:
    """Sleeping takes no time here, but it passes."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.slept: list[float] = []
        # What happens in the world at the n-th sleep.
        self.at_sleep: dict[int, Callable[[], None]] = {}

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed_s)

    def monotonic(self) -> float:
        return 1000.0 + self.passed_s

    def pause(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.passed_s += seconds
        self.at_sleep.pop(len(self.slept), lambda: None)()

    async def sleep(self, seconds: float) -> None:
        self.pause(seconds)


CLI = build_cli(serve, mcp)


@dataclass
class Cli:
    """The command line against the fake, with pipes for streams."""

    api: FakeApi
    clock: InstantClock = field(default_factory=InstantClock)
    key: str | None = KEY

    def __call__(self, *argv: str, typed: str | None = None) -> Result:
        around = CommandContext(
            lambda: parse_server_address(self.api.url, self.key), self.clock, random.Random(7)
        )
        return CliRunner().invoke(
            CLI, list(argv), typed, catch_exceptions=False, prog_name="gpuherd", obj=around
        )


@contextmanager
def running_api() -> Iterator[FakeApi]:
    api = FakeApi()
    api.start()
    try:
        yield api
    finally:
        api.close()
