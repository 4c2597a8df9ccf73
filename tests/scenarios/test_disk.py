"""A full disk, or a database that somebody holds: nothing is half done, and nothing is rented twice."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.services import Novita, Server, free_port

pytestmark = [pytest.mark.processes, pytest.mark.long]

WISH = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}


def limit_file_size(pid: int, size_bytes: int) -> None:
    """Let a process write no further than this into any file: to it the disk is full, whoever it runs as."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


@contextlib.contextmanager
def full_disk(server: Server) -> Iterator[None]:
    process = server.process._process
    assert process is not None
    limit_file_size(process.pid, 1)
    try:
        yield
    finally:
        if server.process.exit_code is None:
            limit_file_size(process.pid, resource.RLIM_INFINITY)


async def calls(novita: Novita, endpoint: str) -> int:
    return int((await novita.control("GET", "calls"))["calls"].get(endpoint, 0))


async def until_called(novita: Novita, endpoint: str, times: int = 1) -> None:
    async with asyncio.timeout(30):
        while await calls(novita, endpoint) < times:
            await asyncio.sleep(0.01)


async def check_one_machine(server: Server, novita: Novita, instance_id: str) -> None:
    ended = await server.until_settled(instance_id)
    assert ended["status"] == "running", ended
    assert [it["id"] for it in await novita.machines()] == [ended["cloudInstanceId"]]
    assert await calls(novita, "create") == 1
    with contextlib.closing(sqlite3.connect(server.data_dir / "gpuherd.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_full_when_a_wish_comes_it_is_refused_and_nothing_of_it_stays(
    server: Server, novita: Novita
) -> None:
    with full_disk(server):
        status, problem = await server.call("POST", "/api/instances", WISH, **{"Idempotency-Key": "one"})
        assert (status, problem["retryAfter"]) == (503, 1)
        assert (await server.call("GET", "/api/instances"))[1]["total"] == 0
    status, made = await server.call("POST", "/api/instances", WISH, **{"Idempotency-Key": "one"})
    assert status == 201, made
    await check_one_machine(server, novita, made["id"])
    assert (await server.call("GET", "/api/instances"))[1]["total"] == 1


@pytest.mark.proves("F31")
async def test_full_before_the_intent_nothing_is_rented_until_there_is_room(
    server: Server, novita: Novita
) -> None:
    # The shop answers late, so that the wish is accepted long before anything can be planned.
    slow_shop = {"kind": "hang", "seconds": 0.8, "endpoints": ["products"], "count": 1}
    await novita.control("POST", "faults", slow_shop)
    status, made = await server.call("POST", "/api/instances", WISH)
    assert status == 201, made
    with full_disk(server):
        await asyncio.sleep(3)
        assert await calls(novita, "products") >= 1
        assert await calls(novita, "create") == 0
        assert server.process.exit_code is None
    await check_one_machine(server, novita, made["id"])


@pytest.mark.proves("F31")
@pytest.mark.parametrize("killed", [False, True], ids=["goes-on", "killed"])
async def test_full_when_the_machine_is_to_be_noted_its_id_is_not_lost(
    server: Server, novita: Novita, killed: bool
) -> None:
    late_answer = {"kind": "hang", "seconds": 0.8, "endpoints": ["create"], "count": 1}
    await novita.control("POST", "faults", late_answer)
    _, made = await server.call("POST", "/api/instances", WISH)
    await until_called(novita, "create")
    with full_disk(server):
        await asyncio.sleep(2)
        assert len(await novita.machines()) == 1
        assert (await server.instance(made["id"]))["cloudInstanceId"] is None
        if killed:
            await server.process.end()
    if killed:
        await server.start()
    await check_one_machine(server, novita, made["id"])


async def test_a_start_on_a_full_disk_says_so(tmp_path: Path) -> None:
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpuherd", "serve"),
        env={
            "HOME": str(tmp_path),
            "NOVITA_API_KEY": "sk_never_used",
            "NOVITA_API_BASE_URL": "http://127.0.0.1:9",
            "GPUHERD_DATA_DIR": str(tmp_path / "data"),
            "GPUHERD_PORT": str(free_port()),
            "GPUHERD_ADMIN_KEY": "a-key-of-sixteen-or-more",
            "WEBHOOK_SECRET": "a-secret-for-webhooks",
        },
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        preexec_fn=fill,
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert process.returncode == 78, said
    assert b"gpuherd.db" in said
    assert b"Traceback" not in said


@pytest.mark.proves("F30")
async def test_a_database_that_somebody_holds_is_waited_for_and_then_refused(
    server: Server, novita: Novita
) -> None:
    with contextlib.closing(
        sqlite3.connect(server.data_dir / "gpuherd.db", isolation_level=None)
    ) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        asking = asyncio.create_task(server.call("POST", "/api/instances", WISH))
        # Whoever only reads is not held up.
        status, page = await server.call("GET", "/api/instances")
        assert (status, page["total"]) == (200, 0)
        status, problem = await asking
        assert (status, problem["retryAfter"]) == (503, 1)
        somebody.execute("ROLLBACK")
    status, made = await server.call("POST", "/api/instances", WISH)
    assert status == 201, made
    await check_one_machine(server, novita, made["id"])
    assert _names(server) == ["job"]


def _names(server: Server) -> list[Any]:
    with contextlib.closing(sqlite3.connect(server.data_dir / "gpuherd.db")) as database:
        return [name for (name,) in database.execute("SELECT name FROM instance")]
