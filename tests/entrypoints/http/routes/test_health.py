"""`/health` says what is wrong, in words that a program can act upon."""

from __future__ import annotations

from datetime import timedelta

import httpx

from gpuherd.simulator.faults.fault import Fault, FaultKind
from tests.support.herd import Herd


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
