"""The doctor asks what Novita answers, in the shape that the simulator has from their documents."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.ops.doctor_server_checks import check_cloud
from gpuherd.settings import load_settings
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World


@pytest.mark.parametrize(("key", "verdict"), [("sk_good", "ok"), ("bad", "problem")])
async def test_novita_says_whether_it_accepts_the_key(tmp_path: Path, key: str, verdict: str) -> None:
    clock = SystemClock()
    server = await start_simulator(World(clock, random.Random(1)))
    try:
        environ = {"NOVITA_API_KEY": key, "NOVITA_API_BASE_URL": server.base_url}
        novita, clocks = await check_cloud(load_settings(environ, tmp_path), clock)
    finally:
        await server.close()
    assert (novita.verdict, clocks.verdict) == (verdict, "ok")
    assert novita.facts["status"] == (200 if verdict == "ok" else 401)
