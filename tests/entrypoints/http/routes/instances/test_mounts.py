"""`volumes` in a wish: they pin the region, reach the machine, and its heirs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd

MINUTES = timedelta(minutes=3)


async def volume(api: httpx.AsyncClient, name: str, region: str = "US-CA-06") -> str:
    reply = await api.post("/api/volumes", json={"name": name, "region": region, "sizeGb": 50})
    return str(reply.json()["id"])


def wish(*ids: str, **more: Any) -> dict[str, Any]:
    mounts = [{"id": it, "mountPath": f"/data/{n}"} for n, it in enumerate(ids)]
    return {**GOOD, "volumes": mounts, **more}


async def test_a_machine_mounts_its_volumes_where_they_are(api: httpx.AsyncClient, herd: Herd) -> None:
    one, two = await volume(api, "one"), await volume(api, "two")
    plan = (await api.post("/api/plans", json=wish(one, two))).json()
    assert plan["regions"] == ["US-CA-06"] and {it["region"] for it in plan["offers"]} == {"US-CA-06"}
    assert any("pin it to US-CA-06" in it for it in plan["warnings"])
    made = (await api.post("/api/instances", json=wish(one, two))).json()
    assert made["volumes"] == wish(one, two)["volumes"] and made["regions"] == ["US-CA-06"]
    await herd.run_for(MINUTES)
    (machine,) = herd.world.machines.values()
    mounted = [(it.id, it.mount_point) for it in machine.request.network_storages]
    assert mounted == [(one, "/data/0"), (two, "/data/1")] and machine.cluster_id == "us-ca-6"
    assert (await api.delete(f"/api/volumes/{one}")).json()["code"] == "VOLUME_IN_USE"
    await api.post(f"/api/instances/{made['id']}/replace")
    await herd.run_for(2 * MINUTES)
    heirs = [it for it in herd.world.machines.values() if it is not machine]
    assert [it.id for it in heirs[0].request.network_storages] == [one, two]


@pytest.mark.parametrize(
    "volumes",
    [
        "v",
        [{"id": "v"}],
        [{"id": "v", "mountPath": "data"}],
        [{"id": "v", "mountPath": "/"}],
        [{"id": "v", "mountPath": "/a/../etc"}],
        [{"id": "", "mountPath": "/a"}],
        [{"id": "v", "mountPath": "/a", "size": 1}],
        [{"id": "v", "mountPath": "/a"}, {"id": "v", "mountPath": "/b"}],
        [{"id": "v", "mountPath": "/a"}, {"id": "w", "mountPath": "/a/"}],
        [{"id": str(n), "mountPath": f"/{n}"} for n in range(31)],
        [{"id": "not-there", "mountPath": "/a"}],
    ],
)
async def test_what_cannot_be_mounted_is_refused(api: httpx.AsyncClient, volumes: Any) -> None:
    for path in ("/api/instances", "/api/plans"):
        reply = await api.post(path, json={**GOOD, "volumes": volumes})
        assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_VOLUMES"), path


async def test_volumes_apart_or_away_from_the_regions_that_are_asked_for_are_refused(
    api: httpx.AsyncClient,
) -> None:
    here, there = await volume(api, "here"), await volume(api, "there", "CN-HK-01")
    assert (await api.post("/api/instances", json=wish(here, there))).json()["code"] == "INVALID_VOLUMES"
    away = wish(here, region="CN-HK-01")
    assert (await api.post("/api/instances", json=away)).json()["code"] == "INVALID_VOLUMES"
    assert (await api.post("/api/instances", json=wish(here, region="us-ca-6"))).status_code == 201


async def test_where_it_is_not_known_whether_a_region_is_meant_nothing_is_rented(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    here = herd.world.volumes.create("data", "us-ca-6", 50, herd.world.now()).id
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.CLUSTERS,)))
    assert (await api.post("/api/instances", json=wish(here, region="us-ca-6"))).status_code == 503
    assert (await api.post("/api/instances", json=wish(here, region="US-CA-06"))).status_code == 201
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.NETWORK_STORAGES,)))
    await herd.clock.advance(MINUTES.total_seconds())
    assert (await api.post("/api/instances", json=wish(here, region="US-CA-06"))).status_code == 503
