"""The load generator, a process of its own: so many callers on keep-alive connections, each in a hurry.

It speaks just enough HTTP/1.1 to cost far less than the server it measures. `python -m bench.load` reads its
orders as JSON from standard input and prints what it saw.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, cast

import uvloop

from bench.report import percentile

# A caller whose reply never comes must not hold up the rest for ever.
HANGING_S = 30.0


@dataclass(frozen=True)
class Orders:
    """Whom to ask what, from how many callers, for so long or so often."""

    port: int
    path: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    callers: int = 1
    seconds: float = 60.0
    count: int | None = None

    def request(self) -> bytes:
        """Return the bytes of the request, the same each time."""
        body = self.body.encode()
        lines = [
            f"{self.method} {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Content-Length: {len(body)}",
            "Content-Type: application/json",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Seen:
    """What the callers saw; a reply that is not a success counts as failed, and fails the row."""

    count: int
    failed: int
    seconds: float
    p50_ms: float
    p99_ms: float
    first_failure: str = ""

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


class _Callers:
    """What all callers share."""

    def __init__(self, orders: Orders):
        self.request = orders.request()
        self.end_at = time.perf_counter() + orders.seconds
        self.left = orders.count
        self.took_s: list[float] = []
        self.failures: list[str] = []

    def may_ask(self) -> bool:
        if self.left is not None:
            if self.left == 0:
                return False
            self.left -= 1
        return time.perf_counter() < self.end_at


class _Caller(asyncio.Protocol):
    def __init__(self, callers: _Callers, done: asyncio.Future[None]):
        self._callers = callers
        self._done = done
        self._parts: list[bytes] = []
        self._missing: int | None = None
        self._asked_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport, they only behave like one.
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._callers.failures.append(f"the connection was closed: {error}")
            self._done.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._missing is None:
            self._parts.append(data)
            head, found, rest = b"".join(self._parts).partition(b"\r\n\r\n")
            if not found:
                return
            self._head, self._missing = head, _length(head) - len(rest)
        else:
            self._missing -= len(data)
        if self._missing <= 0:
            self._answered()

    def _ask(self) -> None:
        if not self._callers.may_ask():
            self._done.set_result(None)
            self._transport.close()
            return
        self._parts, self._missing = [], None
        self._asked_at = time.perf_counter()
        self._transport.write(self._callers.request)

    def _answered(self) -> None:
        self._callers.took_s.append(time.perf_counter() - self._asked_at)
        status = self._head[9:12]
        if not status.startswith(b"2"):
            self._callers.failures.append(f"answered {status.decode()}")
        self._ask()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0


async def make_load(orders: Orders) -> Seen:
    """Let all callers ask until time or count is over."""
    callers = _Callers(orders)
    loop = asyncio.get_running_loop()
    began_s = time.perf_counter()
    ends = [loop.create_future() for _ in range(orders.callers)]
    for end in ends:
        await loop.create_connection(partial(_Caller, callers, end), "127.0.0.1", orders.port)
    await asyncio.gather(*ends)
    took_ms = [it * 1000 for it in callers.took_s] or [0.0]
    return Seen(
        count=len(callers.took_s),
        failed=len(callers.failures),
        seconds=time.perf_counter() - began_s,
        p50_ms=percentile(took_ms, 50),
        p99_ms=percentile(took_ms, 99),
        first_failure=next(iter(callers.failures), ""),
    )


def main() -> None:
    orders = Orders(**json.load(sys.stdin))
    seen = uvloop.run(make_load(orders))
    json.dump(asdict(seen), sys.stdout)


async def load(orders: Orders) -> Seen:
    """Run the load generator in its own process and return what it saw."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.load",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(orders.seconds + HANGING_S):
            out, _ = await process.communicate(json.dumps(asdict(orders)).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    answer: dict[str, Any] = json.loads(out)
    seen = Seen(**answer)
    if seen.failed:
        raise RuntimeError(f"{seen.failed} of {seen.count} requests failed: {seen.first_failure}")
    return seen


if __name__ == "__main__":
    main()
