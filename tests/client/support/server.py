"""A scripted server instead of a network, a clock that never waits, and one way to call either client."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import ConnectionFailed
from gpuherd.client.client_transport import Reply, Request
from gpuherd.client.sync_client import Gpuherd

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
KEY = "ghk_canary_key_of_the_client"
URL = "http://gpuherd.test:8080"


class InstantClock:
    """Waiting takes no time here, but it passes."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed_s)

    def monotonic(self) -> float:
        return 1000.0 + self.passed_s

    def pause(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.passed_s += seconds

    async def sleep(self, seconds: float) -> None:
        self.pause(seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True)
class FakeReply:
    """What the server answers."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    # How long the answer takes.
    after_s: float = 0.0

    def reply(self) -> Reply:
        raw = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return Reply(self.status, self.headers, raw)


Answer = FakeReply | dict[str, Any] | BaseException | Callable[[Request], Any]


def problem(status: int, code: str, detail: str = "no", **more: Any) -> FakeReply:
    return FakeReply({"title": "no", "status": status, "code": code, "detail": detail, **more}, status)


def lost() -> ConnectionFailed:
    """The request went out, and nothing came back."""
    return ConnectionFailed(URL, "the connection broke", sent=True)


def refused() -> ConnectionFailed:
    """Nobody listens."""
    return ConnectionFailed(URL, "connection refused", sent=False)


def details(status: str = "creating", **more: Any) -> dict[str, Any]:
    """An instance as the API tells it."""
    base = {
        "id": "inst_1",
        "name": "train-1",
        "status": status,
        "goal": "running",
        "statusReason": f"it is {status}",
        "hourlyPrice": "0.35",
        "createdAt": "2026-05-01T11:59:40.000000Z",
        "usable": status in ("running", "ready"),
    }
    return base | more


def accepted(status: str = "deleting") -> FakeReply:
    return FakeReply(
        {"operationId": "op_1", "instanceId": "inst_1", "name": "train-1", "status": status}, 202
    )


STILL = {"x-wait-timed-out": "true"}


class FakeServer:
    """Answers in order, whatever is asked; the last one for ever. It is the transport of both clients."""

    def __init__(self, *answers: Answer) -> None:
        self.clock = InstantClock()
        self.seen: list[Request] = []
        self._answers = list(answers)

    def script(self, *answers: Answer) -> None:
        self._answers = list(answers)

    async def send(self, request: Request) -> Reply:
        await asyncio.sleep(0)
        self.seen.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, KeyboardInterrupt):
            # Ctrl-C hits the thread that waits for this answer.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(30)
        if isinstance(answer, BaseException):
            raise answer
        says = answer if isinstance(answer, FakeReply) else FakeReply(answer)
        self.clock.passed_s += says.after_s
        return says.reply()

    async def listen(self, request: Request) -> FakeStream:
        reply = await self.send(request)
        if reply.status != 200:
            return FakeStream(reply, [])
        # A body that is a list comes piece by piece; an error in it breaks the line.
        return FakeStream(Reply(200, {}, b""), json.loads(reply.content))

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def asked(self) -> list[str]:
        return [f"{it.method} {it.target}" for it in self.seen]

    @property
    def keys(self) -> list[str | None]:
        return [it.idempotency_key for it in self.seen]


class FakeStream:
    """A stream whose pieces are known before; `None` breaks it."""

    def __init__(self, reply: Reply, pieces: list[str | None]) -> None:
        self.reply = reply
        self.closed = False
        self._pieces = pieces

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        assert not self.closed, "nobody reads what is closed"
        piece = self._pieces.pop(0) if self._pieces else ""
        if piece is None:
            raise lost()
        return piece.encode()

    def close(self) -> None:
        self.closed = True


Herd = Gpuherd | AsyncGpuherd


class AnyClient:
    """One of the two clients; a test says what it does once."""

    def __init__(self, herd: Herd) -> None:
        self.herd = herd

    async def __call__(self, what: Callable[[Any], Any]) -> Any:
        """Return what a verb gives, or all that a list has."""
        result = what(self.herd)
        if inspect.isawaitable(result):
            return await result
        if isinstance(result, AsyncIterator):
            return [it async for it in result]
        return list(result) if isinstance(result, Iterator) else result

    async def renting(self, body: Callable[[Any], None], **options: Any) -> None:
        """Rent for as long as `body` takes."""
        options = {"product_name": "RTX 4090 24GB", "template_id": 101, **options}
        if isinstance(self.herd, Gpuherd):
            with self.herd.rent("train-1", **options) as gpu:
                body(gpu)
        else:
            async with self.herd.rent("train-1", **options) as gpu:
                body(gpu)


def client_of(kind: str, server: FakeServer, **options: Any) -> AnyClient:
    client = Gpuherd if kind == "sync" else AsyncGpuherd
    shared = {"clock": server.clock, "rng": random.Random(7), **options}
    return AnyClient(client(URL, KEY, transport=server, **shared))
