"""`GET /api/instances/{id}`: kept bytes, thrown away at each change, marked when they may be out of date."""

from __future__ import annotations

from datetime import timedelta

import httpx

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd


async def test_details_by_id_do_not_touch_the_store_again(api: httpx.AsyncClient, herd: Herd) -> None:
    path = f"/api/instances/{(await api.post('/api/instances', json=GOOD)).json()['id']}"
    first = await api.get(path)
    herd.database.read = None  # type: ignore[assignment]
    again = await api.get(path)
    assert again.content == first.content
    assert (again.status_code, again.headers["content-type"]) == (200, "application/json")


async def test_every_step_of_a_rental_is_seen_in_the_details_at_once(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    instance_id = (await api.post("/api/instances", json=GOOD)).json()["id"]
    seen = []
    for _ in range(200):
        shown = (await api.get(f"/api/instances/{instance_id}")).json()
        stored = await herd.get(instance_id)
        assert (shown["status"], shown["statusReason"]) == (stored.status.value, stored.reason)
        seen.append(shown["status"])
        if stored.settled:
            break
        await herd.run_for(timedelta(seconds=1))
    assert list(dict.fromkeys(seen)) == ["creating", "starting", "running"]


async def test_an_outage_marks_the_details(api: httpx.AsyncClient, herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    herd.world.faults.add(Fault(FaultKind.OUTAGE, for_s=300, endpoints=(ApiEndpoint.LIST,)))
    await herd.run_for(timedelta(seconds=200))
    during = (await api.get(f"/api/instances/{instance.id}")).json()
    assert (during["stale"], during["status"]) == (True, "running")
    await herd.run_for(timedelta(seconds=200))
    assert (await api.get(f"/api/instances/{instance.id}")).json()["stale"] is False
