"""Dead names of strangers, looked up for real under the real loop: nobody else waits for them."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuherd.adapters.egress.guarded_client import SsrfSafeClient
from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.secret import Secret
from gpuherd.resilience.dns import Dns
from tests.adapters.egress.doubles import TLS, Receiver

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")
DEAD_NAMES = 16


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None or sys.platform != "linux":
        pytest.skip("real lookups are made slow by a preloaded library, which needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("lookups") / "lookups.so"
    source = HERE.parent / "support" / "lookups.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def answered(preload: Path, gate: Path) -> list[str]:
    environment = {**os.environ, "LD_PRELOAD": str(preload), "DEAD_UNTIL": str(gate)}
    command = [sys.executable, "-m", "tests.bootstrap.lookups_under_load"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.proves("F59")
def test_dead_names_of_receivers_delay_neither_novita_nor_postgresql(preload: Path, tmp_path: Path) -> None:
    assert answered(preload, tmp_path / "gate") == ["novita", "loop", "thread"]


@pytest.fixture
def dead_until(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let names that end in .dead.test hang until the event is set; every other name is this host."""
    gate, real = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **words: Any) -> Any:
        if str(host).endswith(".dead.test"):
            gate.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "the name server does not answer")
        return real("127.0.0.1", port, *args, **words)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield gate
    gate.set()


async def test_dead_names_of_receivers_do_not_delay_novita_on_the_plain_loop_either(
    dead_until: threading.Event,
) -> None:
    # As many threads as libuv has for lookups.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    clock = SystemClock()
    client = SsrfSafeClient(EgressPolicy(), Dns(clock, timeout_s=60), clock, tls=TLS)
    urls = [f"http://hook.zone{number}.dead.test/" for number in range(DEAD_NAMES)]
    pending = [
        asyncio.create_task(client.request("GET", url, headers={}, body=None, timeout_s=60, max_bytes=1))
        for url in urls
    ]
    async with Receiver() as server:
        root = f"http://api.alive.test:{server.port}"
        novita = Exchange(root, Secret("sk_test"), clock=clock, max_bytes=1000)
        await novita.post("/gpu/instance/create", {}, 30)
        assert not any(it.done() for it in pending)
        await novita.close()
    dead_until.set()
    await asyncio.gather(*pending, return_exceptions=True)
    await client.close()
