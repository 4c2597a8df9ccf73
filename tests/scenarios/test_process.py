"""gpuherd as a process: how it starts, how it ends, and what it never says aloud."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.processes.services import Novita, Process, Receiver, Server, free_port

pytestmark = pytest.mark.processes


async def run(tmp_path: Path, *words: str, **env: str) -> tuple[int, str]:
    surroundings = {"GPUHERD_DATA_DIR": str(tmp_path / "data"), **env}
    process = Process(list(words), surroundings, tmp_path / "out.log", forked=False)
    await process.start()
    async with asyncio.timeout(60):
        code = await process.wait()
    return code, process.log.read_text()


@pytest.mark.proves("F37")
async def test_bad_settings_end_it_with_78_and_all_problems_at_once(tmp_path: Path) -> None:
    secret = "canary-of-a-bad-setting"
    code, said = await run(
        tmp_path, "serve", GPUHERD_PORT="x", MAX_CONCURRENT_JOBS="-1", WEBHOOK_SECRET=f"whsec_{secret}"
    )
    assert code == 78
    assert "GPUHERD_PORT" in said
    assert "MAX_CONCURRENT_JOBS" in said
    assert "WEBHOOK_SECRET" in said
    assert "NOVITA_API_KEY" in said
    assert secret not in said


async def test_without_a_key_it_says_what_to_do(tmp_path: Path) -> None:
    code, said = await run(tmp_path, "serve", GPUHERD_PORT=str(free_port()))
    assert code == 78
    assert "NOVITA_API_KEY" in said
    assert "--simulator" in said


async def test_others_may_reach_it_only_with_a_key_that_somebody_chose(tmp_path: Path) -> None:
    code, said = await run(
        tmp_path, "serve", "--simulator", GPUHERD_HOST="0.0.0.0", GPUHERD_PORT=str(free_port())
    )
    assert code == 78
    assert "GPUHERD_ADMIN_KEY" in said


async def test_a_taken_port_is_said_plainly(tmp_path: Path, server: Server) -> None:
    code, said = await run(tmp_path, "serve", "--simulator", GPUHERD_PORT=str(server.port))
    assert code not in (0, None)
    assert str(server.port) in said
    assert "Traceback" not in said


async def test_a_log_on_a_full_device_disturbs_no_rental(
    tmp_path: Path, novita: Novita, hooks: Receiver
) -> None:
    server = Server(tmp_path, novita)
    server.process.log = Path("/dev/full")
    await server.start()
    try:
        _, made = await server.call("POST", "/api/instances", _wish("job", hooks.url))
        assert (await server.until_settled(made["id"]))["status"] == "running"
    finally:
        await server.process.end()


@pytest.mark.proves("F28")
async def test_two_processes_on_one_database_are_refused(tmp_path: Path, server: Server) -> None:
    settings = {
        "GPUHERD_DATA_DIR": str(server.data_dir),
        "GPUHERD_PORT": str(free_port()),
        "NOVITA_API_KEY": "sk_test_canary_novita_key",
    }
    process = Process(["serve"], settings, tmp_path / "second.log")
    await process.start()
    async with asyncio.timeout(60):
        assert await process.wait() == 78
    assert "another gpuherd" in process.log.read_text()


@pytest.mark.proves("F36")
async def test_a_polite_end_finishes_the_call_under_way_and_leaves_nothing_unknown(
    tmp_path: Path, novita: Novita, hooks: Receiver
) -> None:
    # Patient enough that only the signal could end the call, however busy this machine is.
    server = Server(tmp_path, novita, REQUEST_TIMEOUT="20")
    await server.start()
    await novita.control(
        "POST", "faults", {"kind": "hang", "count": 1, "seconds": 0.7, "endpoints": ["create"]}
    )
    _, made = await server.call("POST", "/api/instances", _wish("job", hooks.url))
    async with asyncio.timeout(30):
        while (await novita.control("GET", "calls"))["calls"].get("create", 0) == 0:
            await asyncio.sleep(0.01)
    async with asyncio.timeout(45):
        assert await server.process.end(signal.SIGTERM) == 0
    await server.start()
    await server.until_settled(made["id"])
    _, story = await server.call("GET", f"/api/instances/{made['id']}/events")
    assert "instance.outcome_unknown" not in [it["type"] for it in story["events"]]


async def test_it_answers_while_the_cloud_hangs_and_finishes_when_it_is_back(
    server: Server, novita: Novita, hooks: Receiver
) -> None:
    await novita.control("POST", "faults", {"kind": "hang", "seconds": 60, "forSeconds": 5})
    status, made = await server.call("POST", "/api/instances", _wish("job", hooks.url))
    assert status == 201
    assert (await server.until_settled(made["id"]))["status"] == "running"


async def test_the_data_directory_is_for_its_owner_only(server: Server) -> None:
    for path in [server.data_dir, *server.data_dir.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


async def test_the_admin_key_is_made_once_and_kept(tmp_path: Path) -> None:
    environment = {"GPUHERD_PORT": str(free_port()), "GPUHERD_DATA_DIR": str(tmp_path / "data")}
    keys = set()
    for _ in range(2):
        process = Process(["serve", "--simulator"], environment, tmp_path / "out.log", forked=False)
        await process.start()
        async with asyncio.timeout(60):
            while "service.started" not in process.log.read_text():
                await asyncio.sleep(0.05)
        keys.add((tmp_path / "data" / "admin.key").read_text())
        # It works already, and its door is still being put together: also then the end is a polite one.
        assert await process.end(signal.SIGTERM) == 0
        assert "service.stopped" in process.log.read_text()
        os.truncate(process.log, 0)
    assert len(keys) == 1


async def test_a_simulated_world_that_finds_no_room_on_the_disk_is_no_bad_end(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "simulator.json.new").symlink_to("/dev/full")
    environment = {"GPUHERD_PORT": str(free_port()), "GPUHERD_DATA_DIR": str(data)}
    process = Process(["serve", "--simulator"], environment, tmp_path / "out.log")
    await process.start()
    async with asyncio.timeout(60):
        while "service.started" not in process.log.read_text():
            await asyncio.sleep(0.05)
        assert await process.end(signal.SIGTERM) == 0
    said = process.log.read_text()
    assert said.count("simulator.world_not_saved") == 1
    assert "Traceback" not in said


def _wish(name: str, hook: str, template: str = "101") -> dict[str, object]:
    return {"name": name, "productName": "RTX 4090 24GB", "templateId": template, "webhookUrl": hook}
