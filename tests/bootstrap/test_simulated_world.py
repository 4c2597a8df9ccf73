"""The simulated cloud of a server: its machines outlive a restart, and a full disk is no bad end."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from structlog.testing import LogCapture

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.bootstrap.serve import SIMULATOR_STATE_FILE, running_simulator
from gpuherd.settings import Settings, load_settings

NEW_FILE = f"{SIMULATOR_STATE_FILE}.new"
FAULT = {"kind": "slow_pull", "factor": 3}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"GPUHERD_DATA_DIR": str(tmp_path / "data")}, tmp_path)


@pytest.fixture
def logged() -> Iterator[LogCapture]:
    before, capture = structlog.get_config(), LogCapture()
    structlog.configure(
        processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
    )
    yield capture
    structlog.configure(**before)


async def control(base_url: str, method: str, path: str, body: Any = None) -> Any:
    async with aiohttp.ClientSession() as session:
        reply = await session.request(method, f"{base_url}/_simulator/{path}", json=body)
        assert reply.status < 300, await reply.text()
        return await reply.json()


def fill_the_disk(settings: Settings) -> None:
    """Let whatever is written next to the world find no room."""
    (settings.data_dir / NEW_FILE).symlink_to("/dev/full")


async def test_a_world_is_found_again(settings: Settings) -> None:
    async with running_simulator(settings, SystemClock(), 1.0) as base_url:
        await control(base_url, "POST", "faults", FAULT)
    assert [it.name for it in settings.data_dir.iterdir()] == [SIMULATOR_STATE_FILE]
    async with running_simulator(settings, SystemClock(), 1.0):
        pass
    world = json.loads((settings.data_dir / SIMULATOR_STATE_FILE).read_text())
    assert [it["fault"]["kind"] for it in world["faults"]] == ["slow_pull"]


async def test_a_full_disk_is_one_line_in_the_log_and_what_was_saved_before_stays(
    settings: Settings, logged: LogCapture
) -> None:
    async with running_simulator(settings, SystemClock(), 1.0):
        pass
    before = (settings.data_dir / SIMULATOR_STATE_FILE).read_bytes()
    fill_the_disk(settings)
    async with running_simulator(settings, SystemClock(), 1.0) as base_url:
        await control(base_url, "POST", "faults", FAULT)
    assert [(it["event"], it["error"]) for it in logged.entries] == [
        ("simulator.world_not_saved", "No space left on device")
    ]
    assert [it.name for it in settings.data_dir.iterdir()] == [SIMULATOR_STATE_FILE]
    assert (settings.data_dir / SIMULATOR_STATE_FILE).read_bytes() == before


async def test_it_does_not_hide_why_the_server_ended(settings: Settings) -> None:
    settings.data_dir.mkdir()
    fill_the_disk(settings)
    with pytest.raises(CannotStart, match="the reason"):
        async with running_simulator(settings, SystemClock(), 1.0):
            raise CannotStart("the reason")
