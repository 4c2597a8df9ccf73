"""Processes forked from one that has loaded everything (a fork server), instead of loading it again.

Half of what a process of ours costs a test is to load it. Here a parent (`fork_server_main.py`, one for each
process of pytest) does that once; each child is a process of its own, with its own signals, files,
environment and end. A test that is about the start itself does without (`Process(..., forked=False)`)."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
FORK_SERVER_MODULE = "tests.support.processes.fork_server_main"
# Linux has them; elsewhere every process starts from nothing.
CAN_FORK = hasattr(os, "pidfd_open")
# All that the server, the simulator and the command line load before they are told what to do.
PRELOADED_MODULES = (
    "gpuherd.ops.demo",
    "gpuherd.bootstrap.http_server",
    "gpuherd.bootstrap.serve",
    "gpuherd.ops.demo",
    "gpuherd.adapters.procrastinate_jobs",
    "gpuherd.adapters.sql.listen_notify",
    "gpuherd.adapters.sql.schema_migration",
    "gpuherd.entrypoints.cli.cli_app",
    "gpuherd.entrypoints.cli.rental_progress",
    "gpuherd.entrypoints.cli.webhook_commands",
    "gpuherd.ops.database_commands",
    "gpuherd.ops.operator_commands",
    "gpuherd.entrypoints.web.web_app",
    "gpuherd.simulator.simulator_app",
)


class ForkedProcess:
    """One child; it answers like a `subprocess.Popen`."""

    def __init__(self, pid: int, handle: int, status: int):
        self.pid = pid
        self.returncode: int | None = None
        self._handle = handle
        self._status = status

    def poll(self) -> int | None:
        """Return how it ended, or None as long as it lives."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._end(os.read(self._status, 16))
        return self.returncode

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the end and return the exit code."""
        if self.returncode is None and not select.select([self._status], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout_s or 0.0)
        code = self.poll()
        assert code is not None
        return code

    async def ended(self) -> int:
        """The same, while others go on."""
        while (code := self.poll()) is None:
            loop, reported = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self._status, reported.set)
            try:
                await reported.wait()
            finally:
                loop.remove_reader(self._status)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self, reported: bytes) -> None:
        # Nothing is told when the parent itself is gone, and takes its children with it.
        self.returncode = int(reported) if reported else -signal.SIGKILL
        os.close(self._status)
        os.close(self._handle)


class ForkServer:
    """The parent of the children of this process, and what it has loaded; started when first asked for."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._line: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def make(
        self,
        target: str,
        words: list[str],
        env: Mapping[str, str],
        files: tuple[int, int, int],
        cwd: Path | str = ".",
    ) -> ForkedProcess:
        """Start `python target words…` (a path) or `python -m target words…` (a module), with these files."""
        line = self._started()
        ours, theirs = os.pipe()
        order = {"target": target, "words": words, "env": dict(env), "cwd": str(Path(cwd).resolve())}
        try:
            socket.send_fds(line, [json.dumps(order).encode()], [*files, theirs])
        finally:
            os.close(theirs)
        # With a handle that was made before the child could be forgotten, however soon it ends.
        pid, (handle,), _, _ = socket.recv_fds(line, 16, 1)
        return ForkedProcess(int(pid), handle, ours)

    def end(self) -> None:
        """Be rid of the parent, and of all its children."""
        if self._line is not None and self._server is not None:
            self._line.close()
            self._server.wait()
        self._line = self._server = None

    def _started(self) -> socket.socket:
        if self._line is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
            with theirs:
                self._server = subprocess.Popen(
                    [sys.executable, "-m", FORK_SERVER_MODULE, str(theirs.fileno()), *self._modules],
                    stdin=subprocess.DEVNULL,
                    env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONPATH": path},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        return self._line


FORK_SERVER = ForkServer(*PRELOADED_MODULES)
