"""`/api/costs` while time goes on between one look at the clock and the next."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from tests.support.fake_clock import FakeClock

NOON = datetime(2026, 11, 10, 12, tzinfo=UTC)


class RunningClock(FakeClock):
    """Shows a later time at each look, like a real one."""

    def now(self) -> datetime:
        self.jump_wall(0.000001)
        return super().now()


@pytest.fixture
def clock() -> FakeClock:
    return RunningClock(NOON, auto=True)


async def test_today_stands_beside_its_bill_in_a_period_without_an_end(api: httpx.AsyncClient) -> None:
    await api.post("/api/costs/reconcile", json={"day": "2026-11-09"})
    await api.post("/api/costs/reconcile", json={"day": "2026-11-10"})
    assert (await api.get("/api/costs")).json()["billed"]["through"] == "2026-11-10"
    until_noon = {"from": "2026-11-01", "to": "2026-11-10T12:00:00Z"}
    assert (await api.get("/api/costs", params=until_noon)).json()["billed"]["through"] == "2026-11-09"
