"""`gpuherd doctor --live` as a process beside a server: whole, and killed at each of its paid steps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuherd.ops.live_rentals import LABEL, RentPlan
from tests.support.processes.services import KEY, Novita, Process, Server

pytestmark = pytest.mark.processes

PLAN_PRICE = Decimal(1)
STEPS = ("refused", "rent", "boot", "stop", "start", "remove")
PAID = ("--yes-spend", "0.50")
# The doctor as it is, but with a lease that a test can wait for.
SHORT_LEASE = """
from dataclasses import replace
from datetime import timedelta
from gpuherd.__main__ import main
from gpuherd.ops.doctor.live import contact
plan_of = contact.plan_of
contact.plan_of = lambda *wish: replace(plan_of(*wish), lease=timedelta(seconds=10))
main()
"""


def surroundings(novita: Novita, server: Server) -> dict[str, str]:
    return {
        "NOVITA_API_KEY": "sk_test_canary_novita_key",
        "NOVITA_API_BASE_URL": novita.url,
        "NOVITA_RATE_LIMIT": "0",
        "GPUHERD_DATA_DIR": str(server.data_dir),
        "GPUHERD_PORT": str(server.port),
        "GPUHERD_ADMIN_KEY": KEY,
    }


def doctor(tmp_path: Path, novita: Novita, server: Server, *words: str) -> Process:
    log = tmp_path / "doctor.log"
    log.write_text("")
    return Process(["doctor", "--live", "--json", *words], surroundings(novita, server), log)


async def until_said(process: Process, words: str, limit_s: float = 60.0) -> None:
    began_s = time.monotonic()
    while words not in (said := process.log.read_text()):
        assert process.exit_code is None, f"it ended without {words!r}: {said}"
        assert time.monotonic() < began_s + limit_s, f"{words!r} was not said in {limit_s} s: {said}"
        await asyncio.sleep(0.02)


async def until_line(log: Path, words: str, limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while words not in log.read_text():
            await asyncio.sleep(0.02)


async def until_nothing_costs(novita: Novita, limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while await novita.machines():
            await asyncio.sleep(0.1)


async def rentals(server: Server) -> list[dict[str, Any]]:
    _, page = await server.call("GET", f"/api/instances?label={'='.join(LABEL)}")
    return [it for it in page["instances"] if it["status"] not in ("deleting", "deleted", "failed")]


async def test_the_whole_of_it_ends_well_and_leaves_nothing(
    tmp_path: Path, novita: Novita, server: Server
) -> None:
    report = tmp_path / "report.json"
    process = doctor(tmp_path, novita, server, *PAID, "--report", str(report))
    await process.start()
    async with asyncio.timeout(120):
        assert await process.wait() == 0, process.log.read_text()
    told = json.loads(report.read_text())
    assert [it for it in told["findings"] if it["verdict"] == "differs"] == []
    assert told["spend"]["rented"]
    await until_nothing_costs(novita)
    text = report.read_text()
    assert "sk_test" not in text
    assert KEY not in text
    bill = (await novita.control("GET", "state"))["bill"]
    assert 0 < float(bill["costUsd"]) <= float(told["spend"]["quotedUsd"])


@pytest.mark.proves("E8")
async def test_killed_at_any_step_it_leaves_a_lease_and_the_next_one_cleans_up(
    tmp_path: Path, novita: Novita, server: Server
) -> None:
    longest = RentPlan((), "", PLAN_PRICE).lease + timedelta(seconds=5)
    for step in STEPS:
        process = doctor(tmp_path, novita, server, *PAID)
        await process.start()
        await until_said(process, f"step {step}")
        # Somewhere in the step, not always at its first line.
        await asyncio.sleep(0.05)
        await process.end(signal.SIGKILL)
        for it in await rentals(server):
            assert it["lease"]["then"] == "delete", step
            ends_at = it["lease"]["endsAt"]
            assert ends_at is None or datetime.fromisoformat(ends_at) < datetime.now(UTC) + longest, step
    process = doctor(tmp_path, novita, server)
    await process.start()
    async with asyncio.timeout(60):
        await process.wait()
    await until_nothing_costs(novita)
    state = await novita.control("GET", "state")
    # Whatever was rented was rented through the server: nothing is there that it does not know.
    assert all("--gh1-" in it["name"] for it in state["machines"])
    assert float(state["bill"]["costUsd"]) <= 0.50


@pytest.mark.proves("E8")
@pytest.mark.long
async def test_killed_and_never_started_again_it_ends_by_its_lease(
    tmp_path: Path, novita: Novita, server: Server
) -> None:
    log = tmp_path / "doctor.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SHORT_LEASE, "doctor", "--live", "--json", *PAID),
            env={"HOME": str(tmp_path), **surroundings(novita, server)},
            stdout=out,
            stderr=out,
        )
    try:
        await until_line(log, "step stop")
        assert await novita.machines()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await until_nothing_costs(novita, 45)


async def test_without_a_server_nothing_is_rented_and_that_is_said(tmp_path: Path, novita: Novita) -> None:
    server = Server(tmp_path, novita)
    process = doctor(tmp_path, novita, server, *PAID)
    await process.start()
    async with asyncio.timeout(60):
        assert await process.wait() == 1
    assert "nothing was rented" in process.log.read_text()
    assert (await novita.control("GET", "calls"))["calls"].get("create", 0) == 0
