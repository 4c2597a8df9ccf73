"""`/api/prewarms`: tasks are made, listed with the quota, and deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key

PREWARMS = "/api/prewarms"
IMAGE = "docker.io/team/trainer:1"
TASK: dict[str, Any] = {"imageUrl": IMAGE, "region": "US-CA-06"}
PRIVATE = {**TASK, "imageUrl": "registry.example.com/team/trainer:1.4"}
DONE_S = 40


async def made(api: httpx.AsyncClient, **more: Any) -> httpx.Response:
    return await api.post(PREWARMS, json={**TASK, **more})


async def listed(api: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get(PREWARMS + query)).json()["prewarms"]
    return found


def there(herd: Herd) -> list[str]:
    return [it.image_url for it in herd.world.prewarms.listed()]


def lose(herd: Herd, kind: FaultKind, endpoint: ApiEndpoint = ApiEndpoint.PREWARM_CREATE) -> None:
    herd.world.faults.add(Fault(kind, count=1, endpoints=(endpoint,)))


async def test_a_task_is_made_listed_until_it_is_done_and_deleted(api: httpx.AsyncClient, herd: Herd) -> None:
    reply = await made(api, products=["RTX 4090 24GB"], note="for the night")
    assert reply.status_code == 201
    task = reply.json()
    assert (task["state"], task["region"], task["note"]) == ("pending", "US-CA-06", "for the night")
    # The name of a product is that of all its forms.
    assert {it["productName"] for it in task["products"]} == {"RTX 4090 24GB"}
    assert "4090.16c62g" in {it["productId"] for it in task["products"]}
    answer = (await api.get(PREWARMS)).json()
    assert answer == {
        "prewarms": [task],
        "total": 1,
        "quota": {"used": 1, "limit": 5, "perImageGb": 100},
    }
    await herd.clock.sleep(DONE_S)
    (done,) = await listed(api)
    assert (done["id"], done["state"], done["reasons"]) == (task["id"], "succeeded", [])
    assert done["sizeBytes"] > 10**8 and done["completedAt"] > done["createdAt"]
    assert (await api.delete(f"{PREWARMS}/{task['id']}")).json() == {"id": task["id"], "removed": True}
    assert await listed(api) == []
    assert (await api.delete(f"{PREWARMS}/{task['id']}")).json()["code"] == "PREWARM_NOT_FOUND"
    actions = [it["action"] for it in (await api.get("/api/audit")).json()["entries"]]
    assert actions[:2] == ["prewarm.delete", "prewarm.create"]


async def test_a_machine_with_a_prewarmed_image_is_there_sooner(api: httpx.AsyncClient, herd: Herd) -> None:
    wish = {**GOOD, "templateId": None, "imageUrl": IMAGE, "regions": ["US-CA-06"]}
    del wish["templateId"]

    async def pull_s(name: str) -> float:
        instance = (await api.post("/api/instances", json={**wish, "name": name})).json()
        await herd.run_for(timedelta(minutes=3))
        cloud_id = (await api.get(f"/api/instances/{instance['id']}")).json()["cloudInstanceId"]
        began = {turn.status: turn.at for turn in herd.world.machines[cloud_id].turns}
        return began["running"] - began["pulling"]

    cold_s = await pull_s("cold")
    await made(api)
    await herd.clock.sleep(DONE_S)
    assert await pull_s("warm") < cold_s / 4


@pytest.mark.parametrize("word", ["US-CA-06", "us-ca-6", "US-CA-06 (California)"])
async def test_a_region_is_said_by_code_cluster_or_label(
    word: str, api: httpx.AsyncClient, herd: Herd
) -> None:
    assert (await made(api, region=word)).json()["region"] == "US-CA-06"
    assert len(await listed(api, f"?region={word}")) == 1
    assert await listed(api, "?region=EU-GB-01") == []
    assert (await api.get(f"{PREWARMS}?region=MARS-01")).json()["code"] == "INVALID_REGION"


async def test_a_list_is_filtered_by_state(api: httpx.AsyncClient, herd: Herd) -> None:
    await api.post(PREWARMS, json=PRIVATE)
    await herd.clock.sleep(DONE_S)
    (failed,) = await listed(api, "?state=failed")
    assert "pull access denied" in failed["reasons"][0]
    assert await listed(api, "?state=succeeded") == []
    assert (await api.get(f"{PREWARMS}?state=odd")).json()["code"] == "INVALID_PARAMETER"
    assert (await api.get(f"{PREWARMS}?colour=red")).status_code == 400


async def test_bad_wishes_are_refused_all_at_once_before_anything_is_sent(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    wrong = {"imageUrl": "https://a", "region": "", "registryAuthId": "", "products": [1], "note": ""}
    errors = (await api.post(PREWARMS, json={**wrong, "colour": "red"})).json()["errors"]
    assert {it["code"] for it in errors} == {
        "INVALID_IMAGE",
        "INVALID_REGION",
        "INVALID_REGISTRY_AUTH_ID",
        "INVALID_PRODUCTS",
        "INVALID_NOTE",
        "UNKNOWN_FIELD",
    }
    refused = await made(api, region="MARS-01", products=["abacus"])
    assert {it["code"] for it in refused.json()["errors"]} == {"INVALID_REGION", "INVALID_PRODUCTS"}
    # It is sold, but not there.
    assert (await made(api, products=["H200"])).json()["code"] == "INVALID_PRODUCTS"
    assert (await made(api, registryAuthId="nobody")).json()["code"] == "REGISTRY_AUTH_NOT_FOUND"
    assert there(herd) == [] and herd.world.calls["prewarm_create"] == 0


async def test_a_private_image_is_pulled_with_a_credential_whose_password_nobody_sees(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    reply = await api.post(PREWARMS, json={**PRIVATE, "registryAuthId": TEAM_REGISTRY.id})
    assert reply.json()["registryAuthId"] == TEAM_REGISTRY.id
    await herd.clock.sleep(DONE_S)
    answer = await api.get(PREWARMS)
    assert answer.json()["prewarms"][0]["state"] == "succeeded"
    assert TEAM_REGISTRY.password not in reply.text + answer.text


async def test_the_same_is_pulled_once_and_a_failure_may_be_tried_again(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    first = (await made(api)).json()
    again = await made(api)
    assert (again.status_code, again.json()["code"]) == (409, "PREWARM_EXISTS")
    assert again.json()["details"] == {"id": first["id"], "state": "pending"}
    # Other hosts are another place.
    assert (await made(api, products=["4090.16c62g"])).status_code == 201
    assert (await api.post(PREWARMS, json=PRIVATE)).status_code == 201
    await herd.clock.sleep(DONE_S)
    retried = await api.post(PREWARMS, json={**PRIVATE, "registryAuthId": TEAM_REGISTRY.id})
    assert retried.status_code == 201
    assert len(there(herd)) == 4


async def test_one_too_many_is_refused_with_the_limit(api: httpx.AsyncClient, herd: Herd) -> None:
    for n in range(5):
        assert (await made(api, imageUrl=f"a:{n}")).status_code == 201
    refused = await made(api)
    assert (refused.status_code, refused.json()["code"]) == (409, "PREWARM_QUOTA_EXCEEDED")
    assert refused.json()["details"] == {"used": 5, "limit": 5}
    assert "may have 5" in refused.json()["detail"]
    oldest = (await listed(api))[-1]["id"]
    await api.delete(f"{PREWARMS}/{oldest}")
    assert (await made(api)).status_code == 201


async def test_another_refusal_is_not_taken_for_the_quota(api: httpx.AsyncClient, herd: Herd) -> None:
    def refuse(**more: Any) -> None:
        herd.world.faults.add(
            Fault(FaultKind.REFUSE, count=1, endpoints=(ApiEndpoint.PREWARM_CREATE,), **more)
        )

    refuse(status=400, reason="CLUSTER_SICK", message="not today")
    refused = await made(api)
    assert refused.json()["code"] == "CLOUD_REFUSED" and "not today" in refused.json()["detail"]
    refuse(status=400, reason="OPERATION_LIMIT", message="no")
    lose(herd, FaultKind.OUTAGE, ApiEndpoint.PREWARM_QUOTA)
    assert (await made(api)).json()["code"] == "CLOUD_REFUSED"
    assert (await made(api)).status_code == 201


@pytest.mark.parametrize(
    "kind", [FaultKind.LOST_REPLY_AFTER_COMMIT, FaultKind.LOST_REPLY_BEFORE_COMMIT], ids=["made", "not-made"]
)
async def test_a_task_whose_create_got_no_answer_is_looked_for(
    kind: FaultKind, api: httpx.AsyncClient, herd: Herd
) -> None:
    lose(herd, kind)
    first = await made(api)
    if kind is FaultKind.LOST_REPLY_AFTER_COMMIT:
        assert first.status_code == 201
        assert first.json()["id"] == herd.world.prewarms.listed()[0].id
    else:
        assert (first.status_code, first.json()["code"]) == (503, "PREWARM_OUTCOME_UNKNOWN")
        assert (await made(api)).status_code == 201
    assert there(herd) == [IMAGE]


async def test_a_request_that_is_repeated_with_its_key_has_the_same_answer(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    once = {"Idempotency-Key": "once"}
    first, again = [await api.post(PREWARMS, json=TASK, headers=once) for _ in range(2)]
    assert (first.status_code, again.json()) == (201, first.json())
    other = await api.post(PREWARMS, json={**TASK, "note": "x"}, headers=once)
    assert other.json()["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert there(herd) == [IMAGE]


async def test_a_delete_whose_answer_is_lost_is_looked_after(api: httpx.AsyncClient, herd: Herd) -> None:
    task = (await made(api)).json()["id"]
    lose(herd, FaultKind.LOST_REPLY_BEFORE_COMMIT, ApiEndpoint.PREWARM_DELETE)
    assert (await api.delete(f"{PREWARMS}/{task}")).status_code == 502
    lose(herd, FaultKind.LOST_REPLY_AFTER_COMMIT, ApiEndpoint.PREWARM_DELETE)
    assert (await api.delete(f"{PREWARMS}/{task}")).status_code == 200
    assert there(herd) == []


async def test_a_key_that_may_only_read_changes_nothing(
    api: httpx.AsyncClient, herd: Herd, plane: Plane
) -> None:
    task = (await made(api)).json()["id"]
    reader, writer = [bearer(await make_key(plane, scope)) for scope in ("read", "write")]
    assert (await api.post(PREWARMS, json=TASK, headers=reader)).status_code == 403
    assert (await api.delete(f"{PREWARMS}/{task}", headers=reader)).status_code == 403
    assert (await api.get(PREWARMS, headers=reader)).status_code == 200
    assert there(herd) == [IMAGE]
    assert (await api.delete(f"{PREWARMS}/{task}", headers=writer)).status_code == 200


async def test_many_who_look_cost_the_cloud_one_question(api: httpx.AsyncClient, herd: Herd) -> None:
    for _ in range(5):
        await listed(api)
    assert herd.world.calls["prewarms"] == 1
