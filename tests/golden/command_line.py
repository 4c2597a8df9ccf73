"""The command line against the real application on loopback: while it waits, the simulated world moves on."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import io
import os
import random
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import click
import httpx
from aiohttp import web
from starlette.types import ASGIApp

from gpuherd.__main__ import mcp, serve
from gpuherd.entrypoints.cli import rental_progress
from gpuherd.entrypoints.cli.cli_app import build_cli
from gpuherd.entrypoints.cli.command_runner import CommandContext
from gpuherd.settings_loading import parse_server_address
from tests.entrypoints.http.conftest import KEY
from tests.golden.recording import Recording, with_placeholders
from tests.support.event_streams import asking
from tests.support.herd import Herd

COLUMNS = 100
# How long a stream stays open until the server ends it.
STREAM_SPAN = timedelta(seconds=40)
STEP = timedelta(seconds=1)
# Pictures that move by themselves would show how fast this machine is; here they are redrawn with news only.
REFRESH_S = 3600.0
STREAM = "/api/events"
REQUEST_ID = ("X-Request-Id", "request-of-the-cli")
ESCAPE = re.compile(r"\x1b\[\??[0-9;]*[A-Za-z]|.", re.DOTALL)
# Whatever the developer's own terminal and settings say must not change what is recorded.
FOREIGN = re.compile(
    r"GPUHERD_|NOVITA_|WEBHOOK_|LOG_LEVEL|NO_COLOR|FORCE_COLOR|PY_COLORS|COLORTERM|TTY_|JUPYTER_"
)


@asynccontextmanager
async def serving(app: ASGIApp, http: httpx.AsyncClient, herd: Herd) -> AsyncIterator[str]:
    """Serve the application on a port of this machine, from the loop of the test; give its URL."""

    async def answer(request: web.Request) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        headers.setdefault(*REQUEST_ID)
        if request.path == STREAM and request.headers.get("Accept") == "text/event-stream":
            async with asking(app, STREAM, headers, request.query_string) as stream:
                await herd.run_for(STREAM_SPAN)
            return web.Response(body=stream.body, status=stream.status, headers=_few(stream.headers))
        if request.path.endswith("/logs") and request.query.get("follow") == "true":
            # By a command that waits, at any moment: what it shows of that is not the same each time.
            return web.Response(status=409)
        url = httpx.URL(scheme="http", host="gpuherd", raw_path=request.raw_path.encode())
        asked = asyncio.ensure_future(
            http.request(request.method, url, content=await request.read(), headers=headers)
        )
        while "wait" in request.query and not asked.done():
            await herd.run_for(STEP)
        reply = await asked
        return web.Response(body=reply.content, status=reply.status_code, headers=_few(reply.headers))

    server = web.Application(client_max_size=2**22)
    server.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(server, access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _few(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() != "content-length"}


class WorldClock:
    """The herd's time, for a command in another thread; to sleep is to let the herd work."""

    def __init__(self, herd: Herd, interrupted_after: int | None = None) -> None:
        self._herd = herd
        self._loop = asyncio.get_running_loop()
        self._sleeps_left = interrupted_after
        self.command_thread = 0

    def now(self) -> datetime:
        return self._herd.clock.now()

    def monotonic(self) -> float:
        return self._herd.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        # On the loop of the client.
        if self._is_interrupted():
            thread = ctypes.c_ulong(self.command_thread)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))
            raise asyncio.CancelledError
        if seconds > 0:
            await asyncio.wrap_future(self._pass(seconds))

    def pause(self, seconds: float) -> None:
        # In the thread of the command.
        if self._is_interrupted():
            raise KeyboardInterrupt
        if seconds > 0:
            self._pass(seconds).result()

    def _is_interrupted(self) -> bool:
        """Return True once a person has pressed Ctrl-C."""
        if self._sleeps_left is None:
            return False
        self._sleeps_left -= 1
        return self._sleeps_left < 0

    def _pass(self, seconds: float) -> Future[None]:
        passing = self._herd.run_for(timedelta(seconds=seconds))
        return asyncio.run_coroutine_threadsafe(passing, self._loop)


class Stream(io.TextIOWrapper):
    """One of the three streams of a process, as a pipe or as a terminal."""

    def __init__(self, *, is_terminal: bool, typed: str = "") -> None:
        super().__init__(io.BytesIO(typed.encode()), encoding="utf-8", newline="", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def written(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


class CommandLine:
    """Runs commands and records them."""

    def __init__(self, url: str, herd: Herd, recording: Recording) -> None:
        self.url = url
        self._herd = herd
        self.recording = recording
        self._runs = 0

    async def __call__(
        self,
        *argv: str,
        terminal: bool = False,
        typed: str = "",
        key: str | None = KEY,
        url: str | None = None,
        interrupted_after: int | None = None,
        env: dict[str, str] | None = None,
    ) -> str:
        """Return what came on stdout. With `terminal` it is written as for people, else as for programs."""
        self._runs += 1
        clock = WorldClock(self._herd, interrupted_after)
        rng = random.Random(self._runs)
        around = CommandContext(lambda: parse_server_address(url or self.url, key), clock, rng)
        streams = (
            Stream(is_terminal=terminal, typed=typed),
            Stream(is_terminal=terminal),
            Stream(is_terminal=terminal),
        )
        code = await asyncio.to_thread(_run, argv, around, streams, env or {})
        _, out, err = streams
        self.recording.heading(" ".join(("gpuherd", *argv)) + (" (on a terminal)" if terminal else ""))
        if typed:
            self.recording.add(f"typed: {typed!r}")
        self.recording.add(f"exit code {code}")
        for name, stream in (("stdout", out), ("stderr", err)):
            if stream.written:
                self.recording.add(f"--- {name}", *_shown(stream.written, terminal=terminal))
        return out.written

    async def both(self, *argv: str) -> str:
        """Run a command that changes nothing for programs, then for people."""
        answer = await self(*argv)
        await self(*argv, terminal=True)
        return answer

    async def help(self, *command: str) -> None:
        """Record what a command says about itself."""
        await self(*command, "--help")


CLI = build_cli(serve, mcp)


def commands(group: click.Group = CLI, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Give the words of every command that there is, groups included."""
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


def _run(
    argv: tuple[str, ...], around: CommandContext, streams: tuple[Stream, Stream, Stream], env: dict[str, str]
) -> int:
    assert isinstance(around.clock, WorldClock)
    around.clock.command_thread = threading.get_ident()
    with _process(streams, env):
        try:
            CLI.main(args=list(argv), prog_name="gpuherd", obj=around)
        except SystemExit as end:
            assert isinstance(end.code, int), end.code
            return end.code
    return 0


@contextmanager
def _process(streams: tuple[Stream, Stream, Stream], env: dict[str, str]) -> Iterator[None]:
    """Be a process with these streams, on a terminal of a known width."""
    kept = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    looks = {"COLUMNS": str(COLUMNS), "LINES": "50", "TERM": "xterm-256color", "TZ": "UTC"}
    stdin, out, err = streams
    try:
        with (
            mock.patch.dict(os.environ, {**kept, **looks, **env}, clear=True),
            mock.patch.multiple(sys, stdin=stdin, stdout=out, stderr=err),
            mock.patch.object(rental_progress, "REFRESH_S", REFRESH_S),
        ):
            time.tzset()
            yield
    finally:
        time.tzset()


def _shown(written: str, *, terminal: bool) -> list[str]:
    if not terminal:
        return written.split("\n")
    # The words as they stand there in the end; the sum also covers the styles and what was drawn before.
    digest = hashlib.sha256(with_placeholders(written).encode()).hexdigest()
    return [*screen(written), f"--- sum of its bytes: {digest[:16]}"]


def screen(written: str) -> list[str]:
    """Return what stands on the screen in the end, as a terminal would have drawn it."""
    rows, row, column = [""], 0, 0
    for piece in ESCAPE.findall(written):
        match piece:
            case "\n":
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            case "\r":
                column = 0
            case "\x1b[1A":
                row -= 1
            case "\x1b[2K":
                rows[row] = ""
            case _ if len(piece) == 1:
                rows[row] = rows[row].ljust(column)[:column] + piece + rows[row][column + 1 :]
                column += 1
    return [text.rstrip() for text in rows]
