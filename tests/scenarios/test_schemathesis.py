"""Schemathesis makes requests from our OpenAPI document, good and bad, and holds each reply against it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.support.processes.services import KEY, Server

pytestmark = pytest.mark.processes

# Left out, each for a reason that is no fault of the server:
# - a schema cannot say that a time must be in the future, or that an Idempotency-Key is used up;
# - `/api/instances/stop` may also be an instance of that name, so it has more methods than its entry says.
NOT_CHECKED = "positive_data_acceptance,allow_header_conformance"
# It never ends, which is its purpose.
NOT_ASKED = "/api/events"
LIMIT_S = 500.0


async def attack(server: Server, folder: Path, examples: int, phases: str = "coverage,fuzzing") -> None:
    """Run schemathesis over every operation; it fails with what it found."""
    run = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "schemathesis.cli",
        "run",
        f"{server.url}/openapi.json",
        *("--header", f"Authorization: Bearer {KEY}"),
        *("--checks", "all", "--exclude-checks", NOT_CHECKED),
        *("--exclude-path", NOT_ASKED),
        *("--phases", phases, "--max-examples", str(examples)),
        *("--seed", os.environ.get("SEED", "1"), "--workers", "1", "--no-color"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await run.communicate()
    finally:
        if run.returncode is None:
            run.kill()
            # Or its pipe is closed in the middle of some other test.
            await run.wait()
    told = said.decode()
    assert run.returncode == 0, told[-8000:]
    # It really has asked.
    assert "Tested: " in told
    assert server.process.exit_code is None


# It takes minutes where others need the machine too; the attack has a limit of its own.
@pytest.mark.timeout(LIMIT_S + 60)
async def test_no_request_is_answered_otherwise_than_documented(server: Server, tmp_path: Path) -> None:
    await attack(server, tmp_path, 3, "fuzzing")


@pytest.mark.long
async def test_nor_any_at_the_bounds_of_what_is_allowed(server: Server, tmp_path: Path) -> None:
    await attack(server, tmp_path, 3, "coverage")


@pytest.mark.long
async def test_nor_any_of_very_many(server: Server, tmp_path: Path) -> None:
    await attack(server, tmp_path, 60)
