"""A copy that is made while the server serves, and what becomes of the world when it is put back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.services import KEY, Novita, Process, Server

pytestmark = [pytest.mark.processes, pytest.mark.long]

WISH = {"productName": "RTX 4090 24GB", "templateId": "101", "optimize": "price"}
BACKUPS = 3


async def gpuherd(server: Server, log: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run a command on the server's machine; return its exit code and its JSON."""
    env = {
        "GPUHERD_DATA_DIR": str(server.data_dir),
        "GPUHERD_PORT": str(server.port),
        "GPUHERD_API_KEY": KEY,
    }
    log.unlink(missing_ok=True)
    process = Process([*words], env, log)
    await process.start()
    async with asyncio.timeout(60):
        code = await process.wait()
    return code, json.loads(log.read_text())


async def launch(server: Server, name: str) -> str:
    status, made = await server.call("POST", "/api/instances", {**WISH, "name": name})
    assert status == 201, made
    return str(made["id"])


def rows(path: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return [row[0] if len(row) == 1 else row for row in database.execute(query)]


async def test_a_copy_in_a_storm_of_writes_is_whole_and_of_one_moment(
    server: Server, novita: Novita, tmp_path: Path
) -> None:
    enough = asyncio.Event()

    async def storm(who: int) -> int:
        n = 0
        while not enough.is_set():
            n += 1
            await launch(server, f"storm-{who}-{n}")
        return n

    writers = [asyncio.create_task(storm(who)) for who in range(4)]
    counts = []
    for n in range(BACKUPS):
        copy = tmp_path / f"copy-{n}.db"
        code, made = await gpuherd(server, tmp_path / "backup.log", "backup", str(copy))
        assert (code, made["file"]) == (0, str(copy)), made
        assert rows(copy, "PRAGMA integrity_check") == ["ok"]
        counts.append(rows(copy, "SELECT count(*) FROM instance")[0])
        # What is written in one transaction is in the copy together, or not at all.
        assert rows(copy, "SELECT id FROM instance WHERE id NOT IN (SELECT instance_id FROM event)") == []
        assert rows(copy, "SELECT id FROM instance WHERE id NOT IN (SELECT instance_id FROM job)") == []
        bound = "SELECT cloud_id FROM instance WHERE cloud_id IS NOT NULL"
        noted = "SELECT cloud_id FROM attempt WHERE state = 'bound'"
        assert sorted(rows(copy, bound)) == sorted(rows(copy, noted))
    enough.set()
    accepted = sum(await asyncio.gather(*writers))
    assert counts == sorted(counts)
    assert 0 < counts[-1] <= accepted


@pytest.mark.proves("F34")
async def test_an_old_copy_is_put_back_and_every_machine_is_found_again(
    server: Server, novita: Novita, tmp_path: Path
) -> None:
    before = await launch(server, "before")
    kept = await server.until_settled(before)
    # The shop is closed, so this one is accepted and cannot be rented yet.
    await novita.control("POST", "faults", {"kind": "outage", "endpoints": ["products"], "status": 503})
    # Unlike the first, so that no offer for it is known already.
    _, made = await server.call(
        "POST", "/api/instances", {**WISH, "name": "during", "billingMode": "onDemand"}
    )
    during = str(made["id"])
    copy, log = tmp_path / "copy.db", tmp_path / "command.log"
    assert (await gpuherd(server, log, "backup", str(copy)))[0] == 0
    assert rows(copy, f"SELECT cloud_id FROM instance WHERE id = '{during}'") == [None]
    await novita.control("DELETE", "faults")
    rented = await server.until_settled(during)
    after = await launch(server, "after")
    lost = await server.until_settled(after)
    machines = {it["cloudInstanceId"] for it in (kept, rented, lost)}

    code, refusal = await gpuherd(server, log, "restore", str(copy))
    assert (code, refusal["error"]["code"]) == (5, "SERVER_RUNNING")
    assert await server.process.end(signal.SIGTERM) == 0
    code, done = await gpuherd(server, log, "restore", str(copy))
    assert code == 0, done
    assert rows(Path(done["replaced"]), "SELECT count(*) FROM instance") == [3]

    await server.start()
    assert (await server.until_settled(before))["cloudInstanceId"] == kept["cloudInstanceId"]
    assert (await server.until_settled(during))["cloudInstanceId"] == rented["cloudInstanceId"]
    async with asyncio.timeout(30):
        while not (orphans := (await server.call("GET", "/api/orphans"))[1]["orphans"]):
            await asyncio.sleep(0.1)
    assert [(it["verdict"], it["cloudId"]) for it in orphans] == [("unrecorded", lost["cloudInstanceId"])]
    code, adopted = await gpuherd(server, log, "orphans", "adopt", "--all")
    assert (code, [it["id"] for it in adopted["instances"]]) == (0, [after])
    assert {it["id"] for it in await novita.machines()} == machines
    assert (await novita.control("GET", "calls"))["calls"]["create"] == 3
