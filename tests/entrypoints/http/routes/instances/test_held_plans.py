"""`POST /api/plans {hold: true}` and `POST /api/instances {planId}`, through the whole stack."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import httpx
import pytest

from gpuherd.adapters.sql.rental_tables import held_plan
from gpuherd.domain.instance.instance import Status
from gpuherd.simulator.world import set_price
from tests.entrypoints.http.conftest import GOOD
from tests.entrypoints.http.routes.instances.test_plans import key_of, plan
from tests.support.herd import Herd


async def held(api: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    reply = await plan(api, hold=True, **changes)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


async def rent(api: httpx.AsyncClient, plan_id: object, **more: Any) -> httpx.Response:
    return await api.post("/api/instances", json={"planId": plan_id}, **more)


async def test_a_held_plan_is_rented_as_it_was_planned(api: httpx.AsyncClient, herd: Herd) -> None:
    planned = await held(api, name="mine", gpuNum=2, labels={"team": "a"}, rootfsSize=100)
    assert planned["expiresAt"] == "2026-01-01T00:10:00.000000Z"
    reply = await rent(api, planned["planId"])
    assert reply.status_code == 201
    shown = (await api.get(reply.headers["location"])).json()
    assert (shown["name"], shown["gpuNum"], shown["labels"], shown["rootfsSize"]) == (
        *("mine", 2, {"team": "a"}, 100),
    )
    assert shown["maxHourlyPrice"] == planned["heldHourlyPrice"] == planned["bestHourlyPrice"]
    (instance,) = await herd.instances.find_named("mine")
    assert (await herd.settle(instance)).usable


async def test_a_plan_that_is_not_held_has_no_id_and_what_does_not_fit_is_not_held(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    assert "planId" not in (await plan(api)).json()
    refused = await held(api, maxHourlyPrice="0.01")
    assert (refused["fits"], refused.get("planId")) == (False, None)


async def test_of_auto_the_price_is_that_of_the_fallback(api: httpx.AsyncClient) -> None:
    planned = await held(api, billingMode="auto")
    assert Decimal(planned["heldHourlyPrice"]) > Decimal(planned["bestHourlyPrice"])


async def test_the_values_of_variables_are_sealed_while_a_plan_is_held(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    plan_id = (await held(api, envs={"TOKEN": "canary-in-a-plan"}))["planId"]
    (row,) = herd.rows(held_plan)
    assert "canary" not in row.body
    made = (await rent(api, plan_id)).json()
    assert (await api.get(f"/api/instances/{made['id']}")).json()["envs"] == {"TOKEN": "***"}


async def test_without_a_name_each_plan_gives_one_of_its_own(api: httpx.AsyncClient) -> None:
    names = {(await rent(api, (await held(api))["planId"])).json()["name"] for _ in range(2)}
    assert len(names) == 2


async def test_the_same_plan_again_is_the_same_instance_also_after_its_time(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    plan_id = (await held(api))["planId"]
    first = await rent(api, plan_id)
    again = await rent(api, plan_id, headers={"Idempotency-Key": "another-word"})
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert again.headers["idempotency-replayed"] == "true"
    await herd.clock.sleep(3600)
    assert (await rent(api, plan_id)).json()["id"] == first.json()["id"]


@pytest.mark.proves("A1")
async def test_an_expired_plan_is_410(api: httpx.AsyncClient, herd: Herd) -> None:
    plan_id = (await held(api))["planId"]
    await herd.clock.sleep(600)
    reply = await rent(api, plan_id)
    assert (reply.status_code, reply.json()["code"]) == (410, "PLAN_EXPIRED")
    assert herd.rows(herd.tables.instance) == []


@pytest.mark.proves("A1")
async def test_a_plan_is_never_rented_for_more(api: httpx.AsyncClient, herd: Herd) -> None:
    planned = await held(api, maxHourlyPrice="100")
    for product in list(herd.world.catalogue.products):
        set_price(herd.world, product.id, spot_price=2 * product.spot_price)
    await herd.clock.sleep(60)
    instance = await herd.get((await rent(api, planned["planId"])).json()["id"])
    assert (await herd.settle(instance)).status is Status.FAILED
    assert herd.rows(herd.tables.attempt) == []


@pytest.mark.parametrize("plan_id", [7, None, "", "plan_unknown", ["x"], "x" * 300])
async def test_what_is_no_plan_is_400(api: httpx.AsyncClient, plan_id: object) -> None:
    reply = await rent(api, plan_id)
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_PLAN_ID")


async def test_a_plan_stands_alone(api: httpx.AsyncClient) -> None:
    plan_id = (await held(api))["planId"]
    for more in ({"name": "x"}, GOOD, {"maxHourlyPrice": "9"}, {"odd": 1}):
        reply = await api.post("/api/instances", json={"planId": plan_id, **more})
        assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_PLAN_ID")


async def test_another_keys_plan_is_no_plan_even_for_an_admin(api: httpx.AsyncClient) -> None:
    writer = {"Authorization": f"Bearer {await key_of(api, 'write')}"}
    reply = await api.post("/api/plans", json={**GOOD, "hold": True}, headers=writer)
    plan_id = reply.json()["planId"]
    other = {"Authorization": f"Bearer {await key_of(api, 'write')}"}
    for headers in ({}, other):
        refused = await rent(api, plan_id, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_PLAN_ID")
    assert (await rent(api, plan_id, headers=writer)).status_code == 201


async def test_a_reader_may_plan_but_not_hold(api: httpx.AsyncClient) -> None:
    key = await key_of(api, "read")
    assert (await plan(api, key)).status_code == 200
    assert (await plan(api, key, hold=True)).status_code == 403
    assert (await plan(api, hold="yes")).json()["code"] == "INVALID_HOLD"


@pytest.mark.proves("A1")
async def test_twenty_at_once_rent_one_plan_once(api: httpx.AsyncClient, herd: Herd) -> None:
    plan_id = (await held(api))["planId"]
    replies = await asyncio.gather(
        *(rent(api, plan_id, headers={"Idempotency-Key": f"k{n}"} if n % 2 else {}) for n in range(20))
    )
    assert {it.status_code for it in replies} == {201}
    assert len({it.json()["id"] for it in replies}) == 1
    assert sum("idempotency-replayed" not in it.headers for it in replies) == 1
    assert len(herd.rows(herd.tables.instance)) == 1


async def test_who_planned_it_can_look_at_it_before_and_after_it_is_rented(api: httpx.AsyncClient) -> None:
    plan_id = (planned := await held(api, name="mine", gpuNum=2, lease={"seconds": 3600}))["planId"]
    shown = (await api.get(f"/api/plans/{plan_id}")).json()
    assert shown == {
        "planId": plan_id,
        "expiresAt": planned["expiresAt"],
        "heldHourlyPrice": planned["heldHourlyPrice"],
        "name": "mine",
        "productNames": ["RTX 4090 24GB"],
        "gpuNum": 2,
        "billingMode": "spot",
        "leaseSeconds": 3600,
        "instanceId": None,
    }
    made = (await rent(api, plan_id)).json()
    assert (await api.get(f"/api/plans/{plan_id}")).json()["instanceId"] == made["id"]
    other = {"Authorization": f"Bearer {await key_of(api, 'write')}"}
    refused = await api.get(f"/api/plans/{plan_id}", headers=other)
    assert (refused.status_code, refused.json()["code"]) == (404, "PLAN_NOT_FOUND")
