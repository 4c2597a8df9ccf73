"""A small disk of its own, really full and really read-only, where this machine lets us mount one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.services import Novita, Process, Server, free_port

pytestmark = [pytest.mark.processes, pytest.mark.long]

SIZE = "4m"
WISH = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}


def mount(*words: str) -> bool:
    program = shutil.which("mount")
    if program is None or os.geteuid() != 0:
        return False
    return subprocess.run([program, *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    if not mount("-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(path)):
        pytest.skip("a small disk cannot be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=True)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65_536, 4096, 512, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass
    try:
        yield
    finally:
        filler.unlink()


async def test_without_any_space_left_wishes_are_refused_until_there_is_some(
    disk: Path, tmp_path: Path, novita: Novita
) -> None:
    server = Server(tmp_path, novita)
    assert server.data_dir == disk
    await server.start()
    refusals = 0
    with filled(disk):
        # Some fit into what the log of the database has already taken; none is half written.
        for n in range(200):
            status, body = await server.call("POST", "/api/instances", {**WISH, "name": f"job-{n}"})
            assert status in (201, 503), body
            refusals += status == 503
            if refusals == 3:
                break
        assert refusals == 3
    accepted = n + 1 - refusals
    status, made = await server.call("POST", "/api/instances", WISH)
    assert status == 201, made
    await server.until_settled(made["id"])
    assert (await server.call("GET", "/api/instances"))[1]["total"] == accepted + 1
    await server.process.end()


async def test_a_start_on_a_disk_that_is_read_only_is_refused(disk: Path, tmp_path: Path) -> None:
    (disk / "gpuherd.db").touch(mode=0o600)
    (disk / "gpuherd.lock").touch(mode=0o600)
    assert mount("-o", "remount,ro", str(disk))
    env = {
        "GPUHERD_DATA_DIR": str(disk),
        "GPUHERD_PORT": str(free_port()),
        "GPUHERD_ADMIN_KEY": "a-key-of-sixteen-or-more",
        "WEBHOOK_SECRET": "a-secret-for-webhooks",
        "NOVITA_API_KEY": "sk_never_used",
        "NOVITA_API_BASE_URL": "http://127.0.0.1:9",
    }
    process = Process(["serve"], env, tmp_path / "out.log")
    await process.start()
    async with asyncio.timeout(60):
        code = await process.wait()
    said = process.log.read_text()
    assert code == 78, said
    assert "Traceback" not in said
    assert str(disk) in said
