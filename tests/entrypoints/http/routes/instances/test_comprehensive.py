"""`/api/instances/comprehensive` and `/api/sync` through the whole stack."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from gpuherd.domain.instance.instance import Status
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.support.herd import Herd

PATH = "/api/instances/comprehensive"


async def test_the_list_is_not_taken_for_an_instance_of_that_name(api: httpx.AsyncClient, herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    reply = await api.get(PATH)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert [it["id"] for it in reply.json()["instances"]] == [instance.id]
    assert set(reply.json()) == {
        *("instances", "total", "sources", "stale", "note", "synced", "performance"),
    }


async def test_the_options_reach_the_list(api: httpx.AsyncClient, herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    herd.world.stop(instance.cloud_id or "")
    await herd.clock.sleep(60)
    herd._look_at = herd.clock.now() + timedelta(days=1)
    reply = await api.get(PATH, params={"includeNovitaOnly": "false", "syncLocalState": "true"})
    assert reply.json()["synced"] is True
    await herd.run_for(timedelta(seconds=1))
    assert (await herd.get(instance.id)).status is Status.EXITED


@pytest.mark.parametrize(
    "query",
    ["includeNovitaOnly=1", "includeNovitaOnly=", "syncLocalState=yes", "syncLocalState=True", "sync=true"],
)
async def test_other_options_are_refused(api: httpx.AsyncClient, herd: Herd, query: str) -> None:
    reply = await api.get(f"{PATH}?{query}")
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_PARAMETER")
    assert herd.world.calls.total() == 0


async def test_a_sync_tells_what_it_saw_and_unsettles_what_changed(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    instance = await herd.settle(await herd.launch())
    quiet = await api.post("/api/sync")
    assert quiet.json() == {"listed": 1, "complete": True, "witness": "none", "changed": 0}
    herd.world.stop(instance.cloud_id or "")
    assert (await api.post("/api/sync")).json()["changed"] == 1
    assert (await herd.get(instance.id)).settled is False


FAULTS = [
    Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.LIST,)),
    Fault(FaultKind.REFUSE, endpoints=(ApiEndpoint.LIST,), status=401, reason="UNAUTHORIZED"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda it: it.kind)
async def test_a_sync_without_a_cloud_is_503(api: httpx.AsyncClient, herd: Herd, fault: Fault) -> None:
    herd.world.faults.add(fault)
    reply = await api.post("/api/sync")
    assert reply.status_code == 503
    assert reply.headers["content-type"] == "application/problem+json"
    assert "retry-after" in reply.headers
