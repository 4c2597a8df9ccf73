"""`/api/orphans`: what is shown, what can be ordered, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import httpx
import pytest

from gpuherd.usecases.cloud.collect_orphans import COLLECTOR_BRAKED
from gpuherd.usecases.service.read_service_health import ANSWER_TTL_S
from tests.support.herd import Herd
from tests.support.scraping import read_page
from tests.support.unmanaged_machines import (
    a_surplus_machine,
    alive,
    look,
    look_for,
    rent_outside_gpuherd,
    rent_tagged,
)


async def test_an_account_without_strangers_has_an_empty_ledger(api: httpx.AsyncClient) -> None:
    reply = await api.get("/api/orphans")
    assert reply.status_code == 200
    assert reply.json() == {"orphans": [], "total": 0, "hourlyPrice": "0", "braked": None}


async def test_each_stranger_is_shown_with_what_it_is_and_costs(api: httpx.AsyncClient, herd: Herd) -> None:
    stranger = rent_outside_gpuherd(herd.world, "somebody-elses")
    lost = rent_tagged(herd, 1)
    surplus = await a_surplus_machine(herd, 2)
    herd.auto_delete = False
    await look(herd, 600)
    await look(herd, 3000)
    reply = (await api.get("/api/orphans")).json()
    # What we can do something about comes first.
    assert [it["cloudId"] for it in reply["orphans"]] == [surplus, lost, stranger]
    assert [it["verdict"] for it in reply["orphans"]] == ["surplus", "unrecorded", "foreign"]
    first, _, last = reply["orphans"]
    assert first["instanceId"] == f"inst_{2:026d}"
    assert (last["name"], last["status"], last["instanceId"]) == ("somebody-elses", "running", None)
    assert last["ageSeconds"] == 3600
    assert Decimal(last["costSoFar"]) == Decimal(last["hourlyPrice"])
    assert (last["order"], last["confirmedAt"] is not None) == (None, True)
    assert Decimal(reply["hourlyPrice"]) == sum(Decimal(it["hourlyPrice"]) for it in reply["orphans"])
    only = (await api.get("/api/orphans", params={"verdict": "unrecorded"})).json()
    assert [it["cloudId"] for it in only["orphans"]] == [lost]
    assert (await api.get(f"/api/orphans/{lost}")).json()["verdict"] == "unrecorded"


async def test_a_misspelt_filter_is_refused(api: httpx.AsyncClient) -> None:
    for params in ({"verdict": "odd"}, {"vredict": "surplus"}):
        assert (await api.get("/api/orphans", params=params)).status_code == 400


async def test_a_stranger_is_adopted_and_adopted_again(api: httpx.AsyncClient, herd: Herd) -> None:
    stranger = rent_outside_gpuherd(herd.world, "somebody-elses")
    await look(herd, 600)
    first = await api.post(f"/api/orphans/{stranger}/adopt")
    again = await api.post(f"/api/orphans/{stranger}/adopt", json={})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert first.headers["Location"] == f"/api/instances/{first.json()['id']}"
    shown = (await api.get(f"/api/instances/{first.json()['id']}")).json()
    assert (shown["status"], shown["usable"], shown["cloudInstanceId"]) == ("running", True, stranger)
    assert (await api.get("/api/orphans")).json()["total"] == 0


@pytest.mark.parametrize("order", ["stop", "delete"])
async def test_an_order_is_accepted_and_carried_out(api: httpx.AsyncClient, herd: Herd, order: str) -> None:
    stranger = rent_outside_gpuherd(herd.world, "somebody-elses")
    await look(herd, 600)
    reply = await api.post(f"/api/orphans/{stranger}/{order}")
    assert reply.status_code == 202
    assert (reply.json()["order"], reply.json()["orderedBy"]) == (order, "admin")
    await look_for(herd, timedelta(minutes=3))
    status = herd.world.machines[stranger].status(herd.world.now())
    assert status == {"stop": "exited", "delete": "removed"}[order]


@pytest.mark.parametrize("order", ["adopt", "stop", "delete"])
async def test_what_is_no_orphan_is_refused(api: httpx.AsyncClient, herd: Herd, order: str) -> None:
    missing = await api.post(f"/api/orphans/nobody/{order}")
    assert (missing.status_code, missing.json()["code"]) == (404, "ORPHAN_NOT_FOUND")
    instance = await herd.settle(await herd.launch())
    bound = await api.post(f"/api/orphans/{instance.cloud_id}/{order}")
    assert (bound.status_code, bound.json()["code"]) == (409, "ORPHAN_CLAIMED")
    assert bound.json()["details"] == {"instanceId": instance.id}
    odd = await api.post(f"/api/orphans/{instance.cloud_id}/{order}", json={"force": True})
    assert (odd.status_code, odd.json()["code"]) == (400, "UNKNOWN_FIELD")
    assert alive(herd) == {instance.cloud_id}


async def test_a_brake_is_shown_until_somebody_resumes(api: httpx.AsyncClient, herd: Herd) -> None:
    many = {await a_surplus_machine(herd, n) for n in range(3)}
    await herd.run_for(timedelta(seconds=70))
    reason = await herd.flags.get(COLLECTOR_BRAKED)
    assert reason
    assert (await api.get("/api/orphans")).json()["braked"] == reason
    health = (await api.get("/health")).json()
    assert (health["status"], health["collectorBraked"]) == ("degraded", reason)
    reply = await api.post("/api/orphans/resume")
    assert reply.status_code == 200
    assert {it["cloudId"] for it in reply.json()["released"]} == many
    await herd.clock.sleep(ANSWER_TTL_S)
    health = (await api.get("/health")).json()
    assert (health["status"], health["collectorBraked"]) == ("healthy", None)
    assert (await api.post("/api/orphans/resume")).json() == {"braked": None, "released": []}
    await look(herd, 10)
    assert alive(herd) == set()


async def test_a_key_is_needed(anonymous: httpx.AsyncClient) -> None:
    assert (await anonymous.get("/api/orphans")).status_code == 401
    assert (await anonymous.post("/api/orphans/resume")).status_code == 401


async def test_the_metrics_count_them_and_their_price(api: httpx.AsyncClient, herd: Herd) -> None:
    rent_outside_gpuherd(herd.world, "somebody-elses")
    await look(herd, 600)
    await look(herd, 600)
    page = read_page((await api.get("/metrics")).content)
    shown = (await api.get("/api/orphans")).json()
    assert page.value("gpuherd_orphans", verdict="foreign") == 1
    assert page.value("gpuherd_orphans", verdict="surplus") == 0
    assert page.value("gpuherd_orphans_usd_per_hour", verdict="foreign") == float(shown["hourlyPrice"])
