"""`/health` says what is wrong, in words that a program can act upon."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import httpx
import pytest

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.ports.job_port import Jobs
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.usecases.cloud.collect_orphans import COLLECTOR_BRAKED
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED, VANISHING_HELD
from gpuherd.usecases.service.read_service_health import ANSWER_TTL_S
from tests.entrypoints.http.conftest import KEY
from tests.support.failing import Failing
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd


@pytest.mark.proves("F38")
async def test_a_refused_key_is_shown_until_it_is_accepted_again(api: httpx.AsyncClient, herd: Herd) -> None:
    await herd.run_for(timedelta(minutes=2))
    assert (await api.get("/health")).json()["dependencies"]["novita"]["trouble"] is None
    herd.world.faults.add(Fault(FaultKind.REFUSE, status=401, reason="UNAUTHORIZED", for_s=300))
    await herd.run_for(timedelta(minutes=2))
    seen = (await api.get("/health")).json()
    novita = seen["dependencies"]["novita"]
    assert (seen["status"], novita["status"], novita["trouble"]) == (
        "degraded",
        "down",
        "AUTHENTICATION_FAILED",
    )
    await herd.run_for(timedelta(minutes=6))
    seen = (await api.get("/health")).json()
    assert (seen["status"], seen["dependencies"]["novita"]["trouble"]) == ("healthy", None)


async def test_without_a_key_a_reason_is_a_code(api: httpx.AsyncClient, herd: Herd, clock: FakeClock) -> None:
    await herd.flags.put(CREATES_BLOCKED, "tag gh1-secret is not on machine m-17")
    await herd.flags.put(COLLECTOR_BRAKED, "12 machines, of which m-18 is the first")
    with_a_key = (await api.get("/health")).json()
    assert with_a_key["createsBlocked"] == "tag gh1-secret is not on machine m-17"
    assert with_a_key["collectorBraked"] == "12 machines, of which m-18 is the first"
    for headers in (
        {"Authorization": ""},
        {"Authorization": "Bearer ghk_none"},
        {"Authorization": f"Basic {KEY}"},
    ):
        reply = await api.get("/health", headers=headers)
        assert reply.status_code == 200
        assert (reply.json()["createsBlocked"], reply.json()["collectorBraked"]) == (
            "CREATES_BLOCKED",
            "COLLECTOR_BRAKED",
        )
        assert "m-1" not in reply.text
        assert reply.json()["status"] == "degraded"


async def test_what_is_held_is_shown_in_words_to_those_with_a_key(
    api: httpx.AsyncClient, herd: Herd, plane: Plane, clock: FakeClock
) -> None:
    await herd.flags.put(VANISHING_HELD, "5 machines are missing")
    plane.account.account, plane.account.confirmed = "another", False
    await herd.look()
    await clock.sleep(timedelta(minutes=6).total_seconds())
    await herd.look()
    told = (await api.get("/health")).json()
    assert (told["status"], told["vanishingHeld"]) == ("degraded", "5 machines are missing")
    assert "gpuherd cloud confirm-account" in told["accountUnconfirmed"]
    assert "not the account" in told["dependencies"]["novita"]["unbelieved"]
    open_to_all = (await api.get("/health", headers={"Authorization": ""})).json()
    assert open_to_all["status"] == "degraded"
    assert open_to_all["vanishingHeld"] == "VANISHING_HELD"
    assert open_to_all["accountUnconfirmed"] == "ACCOUNT_UNCONFIRMED"
    assert open_to_all["dependencies"]["novita"]["unbelieved"] == "LISTS_UNBELIEVED"


class CountingJobs:
    """The jobs, or what stands for them, with a count of how often they were asked."""

    def __init__(self, jobs: Jobs | Failing):
        self._ask, self.asked = jobs.oldest_due_s, 0

    async def oldest_due_s(self) -> float:
        self.asked += 1
        return await self._ask()


async def test_it_is_computed_once_a_second_for_all_callers(
    api: httpx.AsyncClient, herd: Herd, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = CountingJobs(herd.stores.jobs)
    monkeypatch.setattr(herd.stores.jobs, "oldest_due_s", jobs.oldest_due_s)
    replies = await asyncio.gather(*(api.get("/health") for _ in range(20)))
    assert {it.status_code for it in replies} == {200}
    assert jobs.asked == 1
    await clock.sleep(ANSWER_TTL_S)
    await api.get("/health")
    assert jobs.asked == 2


async def test_a_database_that_is_away_is_asked_once_a_second_too(
    api: httpx.AsyncClient, herd: Herd, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = CountingJobs(Failing(StoreUnavailable("away")))
    monkeypatch.setattr(herd.stores.jobs, "oldest_due_s", jobs.oldest_due_s)
    replies = [await api.get("/health") for _ in range(5)]
    assert {it.status_code for it in replies} == {503}
    assert replies[0].json() == {"status": "unhealthy", "dependencies": {"database": {"status": "down"}}}
    assert jobs.asked == 1
