"""`POST /api/plans` and the record of `GET /api/instances/{id}/attempts`, through the whole stack."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.simulator.faults import Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd

QUESTION = {key: value for key, value in GOOD.items() if key != "name"}


async def plan(api: httpx.AsyncClient, key: str | None = None, **changes: Any) -> httpx.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return await api.post("/api/plans", json={**QUESTION, **changes}, headers=headers)


async def key_of(api: httpx.AsyncClient, scope: str, **limits: Any) -> str:
    made = await api.post("/api/keys", json={"label": scope, "scopes": [scope], "limits": limits})
    assert made.status_code == 201, made.text
    return str(made.json()["key"])


async def test_a_plan_needs_no_name_and_ranks_the_offers(api: httpx.AsyncClient, herd: Herd) -> None:
    reply = await plan(api)
    assert reply.status_code == 200
    told = reply.json()
    assert (told["fits"], told["templateFound"], told["reasons"], told["warnings"]) == (True, True, [], [])
    assert (told["productName"], told["billingMode"], told["gpuNum"]) == ("RTX 4090 24GB", "spot", 1)
    assert [it["rank"] for it in told["offers"]] == [1, 2, 3, 4]
    assert told["offers"][0]["hourlyPrice"] == told["bestHourlyPrice"]
    assert all(it["reason"] for it in told["refused"])
    assert herd.rows(herd.tables.instance) == []


async def test_an_impossible_wish_is_200_with_the_reasons(api: httpx.AsyncClient) -> None:
    reply = await plan(api, maxHourlyPrice="0.01")
    assert reply.status_code == 200
    told = reply.json()
    assert told["fits"] is False
    (reason,) = told["reasons"]
    assert reason["code"] == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    refused = await api.post("/api/instances", json={**GOOD, "maxHourlyPrice": "0.01"})
    assert refused.json()["details"] == reason["details"]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"productName": "nothing"}, 404, "PRODUCT_NOT_FOUND"),
        ({"templateId": "999999"}, 404, "TEMPLATE_NOT_FOUND"),
        ({"region": "moon"}, 400, "INVALID_REGION"),
        ({"lease": {"until": "2020-01-01T00:00:00Z"}}, 400, "INVALID_LEASE"),
        ({"lease": {"until": "2099-01-01T00:00:00Z"}}, 400, "INVALID_LEASE"),
        # Five seconds ahead.
        ({"lease": {"until": "2026-01-01T00:00:05Z"}}, 400, "INVALID_LEASE"),
        ({"maxHourlyPric": 1}, 400, "UNKNOWN_FIELD"),
        ({"name": " "}, 400, "INVALID_INSTANCE_NAME"),
        ({"webhookUrl": "http://10.0.0.1/"}, 400, "INVALID_WEBHOOK_URL"),
    ],
)
async def test_a_wrong_body_is_refused_as_in_a_create(
    api: httpx.AsyncClient, changes: dict[str, Any], status: int, code: str
) -> None:
    reply = await plan(api, **changes)
    assert (reply.status_code, reply.json()["code"]) == (status, code)
    create = await api.post("/api/instances", json={**GOOD, **changes})
    assert (create.status_code, create.json()["code"]) == (status, code)


async def test_a_lease_that_the_key_may_not_have_is_refused_as_in_a_create(api: httpx.AsyncClient) -> None:
    limited = await key_of(api, "write", maxLeaseSeconds=60)
    for reply in (
        await plan(api, limited, hold=True, lease={"seconds": 600}),
        await plan(api, limited, lease={"seconds": 600}),
    ):
        assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_LEASE")
    # It says nothing of one, and gets the one that it may have.
    assert (await plan(api, limited)).json()["fits"] is True


async def test_a_cloud_that_cannot_be_asked_is_503_with_the_reason(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    herd.world.faults.add(Fault(FaultKind.OUTAGE))
    reply = await plan(api)
    assert reply.status_code == 503
    assert "Retry-After" in reply.headers
    assert reply.json()["detail"]


async def test_a_reader_may_ask_and_is_told_that_it_may_not_rent(api: httpx.AsyncClient) -> None:
    reply = await plan(api, await key_of(api, "read"))
    assert reply.status_code == 200
    assert "scope write" in reply.json()["warnings"][0]


async def test_the_limits_of_the_key_are_in_the_plan(api: httpx.AsyncClient) -> None:
    key = await key_of(api, "write", maxGpus=1)
    assert (await plan(api, key)).json()["fits"] is True
    told = (await plan(api, key, gpuNum=2)).json()
    assert told["fits"] is False
    assert told["offers"]
    (reason,) = told["reasons"]
    assert (reason["code"], reason["details"]["gpus"]["allowed"]) == ("QUOTA_EXCEEDED", 1)


async def test_the_document_describes_the_body_without_a_required_name(api: httpx.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()
    bodies = document["components"]["schemas"]
    assert "required" not in bodies["PlanBody"]
    assert bodies["PlanBody"]["not"] == {"properties": {"templateId": False, "imageUrl": False}}
    condition = [bodies["PlanBody"][word] for word in ("if", "then", "else")]
    many, one = {"required": ["productNames"]}, {"required": ["productName"]}
    assert condition == [many, {"not": one}, one]
    assert bodies["LaunchBody"]["if"] == {"required": ["planId"]}
    assert "name" in bodies["LaunchBody"]["else"]["required"]
    for path, name in (("/api/plans", "PlanBody"), ("/api/instances", "LaunchBody")):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        assert content["application/json"]["schema"] == {"$ref": f"#/components/schemas/{name}"}


async def test_the_record_of_an_instance(api: httpx.AsyncClient, herd: Herd) -> None:
    made = (await api.post("/api/instances", json=GOOD)).json()
    await herd.run_for(timedelta(seconds=10))
    told = (await api.get(f"/api/instances/{made['id']}/attempts")).json()
    assert (told["instanceId"], told["name"], told["status"]) == (made["id"], "job", "starting")
    assert told["attempts"][0]["state"] == "bound"
    assert told["waits"]["for"] == "machine" and told["waits"]["nextTryAt"] and told["waits"]["until"]
    assert told["story"][0]["text"].startswith("Accepted: 1 × RTX 4090 24GB")
    assert told["considered"][0]["ranked"][0]["region"] == "CN-HK-01"
    assert told["advice"].startswith("Nothing, unless it takes longer")
    await herd.run_for(timedelta(minutes=2))
    by_name = (await api.get("/api/instances/job/attempts")).json()
    assert by_name["waits"] is None and by_name["usable"] is True


async def test_others_do_not_see_the_record(api: httpx.AsyncClient, herd: Herd) -> None:
    made = (await api.post("/api/instances", json=GOOD)).json()
    headers = {"Authorization": f"Bearer {await key_of(api, 'write')}"}
    reply = await api.get(f"/api/instances/{made['id']}/attempts", headers=headers)
    assert reply.status_code == 404
