"""The process that `fork_server.py` starts: it loads everything once, and forks a child for each order."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1
ORDER_MAX = 1 << 16


class ForkServerLoop:
    """Waits for orders and for ends of children."""

    def __init__(self, line: socket.socket):
        self._line = line
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(line, selectors.EVENT_READ)
        # By the handle of each child: its pid, and where its end is to be told.
        self._children: dict[int, tuple[int, int]] = {}

    def serve(self) -> dict[str, Any] | None:
        """Return, in a child, its order; in the parent, nothing once nobody can order any more."""
        while True:
            for key, _ in self._waiting.select():
                if key.fileobj is not self._line:
                    self._reap(key.fd)
                    continue
                message, files, _, _ = socket.recv_fds(self._line, ORDER_MAX, 4)
                if not message:
                    return None
                *streams, status = files
                pid = os.fork()
                if pid == 0:
                    self._close_inherited()
                    os.close(status)
                    _redirect_streams(streams)
                    order: dict[str, Any] = json.loads(message)
                    return order
                for it in streams:
                    os.close(it)
                handle = os.pidfd_open(pid)
                self._children[handle] = (pid, status)
                self._waiting.register(handle, selectors.EVENT_READ)
                socket.send_fds(self._line, [str(pid).encode()], [handle])

    def _reap(self, handle: int) -> None:
        pid, status = self._children.pop(handle)
        self._waiting.unregister(handle)
        os.close(handle)
        _, how = os.waitpid(pid, 0)
        # Whoever wanted to know may be gone by now.
        with contextlib.suppress(BrokenPipeError):
            os.write(status, str(os.waitstatus_to_exitcode(how)).encode())
        os.close(status)

    def _close_inherited(self) -> None:
        """Let go of all that a child must not hold."""
        self._waiting.close()
        self._line.close()
        for handle, (_, status) in self._children.items():
            os.close(handle)
            os.close(status)


def _redirect_streams(streams: list[int]) -> None:
    """Take the given files for one's own, and be the first of a session, as a command in a terminal is."""
    os.setsid()
    for number, it in enumerate(streams):
        os.dup2(it, number)
        os.close(it)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        new = open(  # noqa: SIM115  for as long as the process lives
            number,
            "w" if number else "r",
            # Errors are shown at once, and so is all else where a person may be looking.
            buffering=1 if number == 2 or os.isatty(number) else -1,
            encoding=old.encoding,
            errors=old.errors,
            closefd=False,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _run_order(order: dict[str, Any]) -> None:
    # The parent ends when the tests do, however they end: its line is closed then.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    target = order["target"]
    sys.argv = [target, *order["words"]]
    if os.sep in target:
        runpy.run_path(target, run_name="__main__")
    else:
        runpy.run_module(target, run_name="__main__", alter_sys=True)


def main() -> None:
    number, *modules = sys.argv[1:]
    line = socket.socket(fileno=int(number))
    for it in modules:
        importlib.import_module(it)
    # What is loaded stays, so nobody need look at it again; and no child copies it by looking.
    gc.collect()
    gc.freeze()
    order = ForkServerLoop(line).serve()
    if order is not None:
        _run_order(order)


if __name__ == "__main__":
    main()
