"""The blocking client runs the asynchronous one on a thread of its own; its user notices nothing of that."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.sync_client import Gpuherd
from tests.client.support.server import STILL, FakeReply, FakeServer, client_of, details


def herd_of(server: FakeServer) -> Any:
    return client_of("sync", server).herd


def test_both_clients_have_the_same_verbs_with_words_about_them() -> None:
    one, other = Gpuherd("http://x", "k"), AsyncGpuherd("http://x", "k")
    assert _verbs(one) == _verbs(other)
    assert {"instances.create", "webhooks.deliveries.replay", "rent", "health"} <= _verbs(one)


def _verbs(it: Any, prefix: str = "") -> set[str]:
    found = set()
    for name in dir(it):
        if name.startswith("_") or name == "url":
            continue
        value = getattr(it, name)
        if callable(value):
            assert inspect.getdoc(value), f"{prefix}{name} has no docstring"
            found.add(f"{prefix}{name}{list(inspect.signature(value).parameters)}")
            found.add(prefix + name)
        else:
            found |= _verbs(value, f"{prefix}{name}.")
    return found


def test_a_callback_runs_in_the_calling_thread_and_may_use_the_client(server: FakeServer) -> None:
    herd = herd_of(server)
    server.script(details(), details(), details("running"))
    seen: list[Any] = []

    def on_progress(instance: Any) -> None:
        seen.append(threading.current_thread())
        if not instance.usable:
            herd.instances.get("train-1")

    assert herd.instances.wait("train-1", on_progress=on_progress).usable
    assert seen == [threading.current_thread()] * 2


def test_an_error_of_a_callback_ends_the_call(server: FakeServer) -> None:
    server.script(details(), FakeReply(details(), headers=STILL))

    def on_progress(_: Any) -> None:
        raise StopIteration("mine")

    with pytest.raises(StopIteration, match="mine"):
        herd_of(server).instances.wait("train-1", on_progress=on_progress)


def test_an_interrupt_ends_a_wait_and_the_client_goes_on(server: FakeServer) -> None:
    herd = herd_of(server)
    server.script(details(), KeyboardInterrupt(), details("running"))
    with pytest.raises(KeyboardInterrupt):
        herd.instances.wait("train-1")
    assert herd.instances.get("train-1").usable


def test_a_stream_that_is_dropped_is_closed(server: FakeServer) -> None:
    closed = threading.Event()

    class Stream:
        reply = FakeReply({}).reply()

        async def read(self) -> bytes:
            return b"a piece"

        def close(self) -> None:
            closed.set()

    async def listen(_: object) -> Stream:
        return Stream()

    server.listen = listen  # type: ignore[assignment, method-assign]
    logs = herd_of(server).instances.logs("train-1", follow=True)
    assert next(logs) == b"a piece"
    del logs
    gc.collect()
    assert closed.wait(10)


def test_a_child_process_has_a_client_of_its_own(server: FakeServer) -> None:
    herd = herd_of(server)
    server.script(details("running"))
    assert herd.instances.get("train-1").usable
    child = os.fork()
    if child == 0:
        os._exit(0 if herd.instances.get("train-1").usable else 1)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended == (child, 0)
    assert herd.instances.get("train-1").usable


PROGRAM = """
import http.server, threading
from gpuherd.client import Gpuherd

class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        body = b'{"status": "healthy", "dependencies": {}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
herd = Gpuherd(f"http://127.0.0.1:{server.server_port}", "k")
print(herd.health().status)
"""


def test_a_client_that_nobody_closes_ends_with_the_program_and_without_a_word() -> None:
    command = [sys.executable, "-X", "dev", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "healthy\n")
    assert "Unclosed" not in done.stderr and "Traceback" not in done.stderr, done.stderr
