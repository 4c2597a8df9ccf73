"""Run by test_name_lookups in a process of its own: who gets through while strangers' names are dead.

Prints a line for each call that was answered while every dead lookup was still pending."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

import uvloop

from gpuherd.adapters.egress.guarded_client import SsrfSafeClient
from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.secret import Secret
from gpuherd.ports.egress_port import EgressFailure
from gpuherd.resilience.dns import Dns

DEAD_NAMES = 16
PATIENCE_S = 20.0
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    novita = Exchange(f"http://api.alive.test:{port}", Secret("sk_test"), clock=SystemClock(), max_bytes=1000)
    pending = await dead_receivers()
    # Each connection of a change is a fresh one, with an address that was looked up or remembered.
    await through("novita", novita.post("/gpu/instance/create", {}, PATIENCE_S), pending)
    loop = asyncio.get_running_loop()
    # As an asynchronous driver connects, and as libpq does in its own thread.
    await through("loop", loop.create_connection(asyncio.Protocol, "db.alive.test", port), pending)
    in_thread = asyncio.to_thread(socket.create_connection, ("db.alive.test", port), PATIENCE_S)
    await through("thread", in_thread, pending)
    Path(os.environ["DEAD_UNTIL"]).touch()
    await asyncio.gather(*pending, return_exceptions=True)
    await novita.close()
    server.close()


async def through(name, call, pending) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await call
    assert not any(it.done() for it in pending)
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()


async def dead_receivers() -> list[asyncio.Task[None]]:
    client = SsrfSafeClient(EgressPolicy(), Dns(SystemClock(), timeout_s=600), SystemClock())

    async def deliver(number: int) -> None:
        with contextlib.suppress(EgressFailure):
            url = f"http://hook.zone{number}.dead.test/"
            await client.request("POST", url, headers={}, body=b"", timeout_s=600, max_bytes=1)

    return await begun(asyncio.create_task(deliver(number)) for number in range(DEAD_NAMES))


async def begun(tasks) -> list[asyncio.Task[None]]:
    pending = list(tasks)
    # Long enough for each of them to be in its thread, or in the queue for one.
    await asyncio.sleep(0.3)
    return pending


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REPLY)
        await writer.drain()
    writer.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
