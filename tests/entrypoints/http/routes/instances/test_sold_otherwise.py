"""A product that is sold, but not in the way that is asked for, is no stranger: 409 tells how it is sold."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd

B200 = {**GOOD, "productName": "B200"}
ON_DEMAND_ONLY = "not sold as spot, only as onDemand"


def reasons(details: dict[str, Any]) -> set[str]:
    return {offer["reason"] for region in details["regions"] for offer in region["offers"]}


@pytest.mark.parametrize("where", [{}, {"region": "US-CA-03"}, {"optimize": "price"}])
async def test_a_create_is_refused_with_how_it_is_sold(
    api: httpx.AsyncClient, herd: Herd, where: dict[str, str]
) -> None:
    reply = await api.post("/api/instances", json={**B200, **where})
    assert (reply.status_code, reply.json()["code"]) == (409, "NO_OPTIMAL_PRODUCT_ANY_REGION")
    assert reasons(reply.json()["details"]) == {ON_DEMAND_ONLY}
    assert herd.rows(herd.tables.instance) == []


async def test_a_plan_shows_it_among_what_is_refused(api: httpx.AsyncClient) -> None:
    reply = await api.post("/api/plans", json=B200)
    body = reply.json()
    assert (reply.status_code, body["fits"]) == (200, False)
    assert {it["reason"] for it in body["refused"]} == {ON_DEMAND_ONLY}
    assert [it["code"] for it in body["reasons"]] == ["NO_OPTIMAL_PRODUCT_ANY_REGION"]


@pytest.mark.parametrize("mode", ["onDemand", "auto"])
async def test_who_would_pay_as_it_is_sold_gets_it(api: httpx.AsyncClient, mode: str) -> None:
    wanted = {**B200, "billingMode": mode, "region": "US-CA-03"}
    assert (await api.post("/api/instances", json=wanted)).status_code == 201


async def test_what_is_sold_in_no_way_is_still_not_found(api: httpx.AsyncClient) -> None:
    for route in ("/api/instances", "/api/plans"):
        reply = await api.post(route, json={**GOOD, "productName": "GTX 9999"})
        assert (reply.status_code, reply.json()["code"]) == (404, "PRODUCT_NOT_FOUND")


async def test_only_what_is_not_found_costs_another_look_and_that_one_is_kept(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    assert (await api.post("/api/instances", json=GOOD)).status_code == 201
    assert herd.world.calls[ApiEndpoint.PRODUCTS.value] == 1
    for _ in range(3):
        assert (await api.post("/api/instances", json=B200)).status_code == 409
    assert herd.world.calls[ApiEndpoint.PRODUCTS.value] == 2


async def test_if_the_other_list_cannot_be_had_it_is_not_found(api: httpx.AsyncClient, herd: Herd) -> None:
    await herd.offers(BillingMode.SPOT)
    herd.world.faults.add(Fault(FaultKind.OUTAGE, for_s=600, endpoints=(ApiEndpoint.PRODUCTS,)))
    reply = await api.post("/api/instances", json=B200)
    assert (reply.status_code, reply.json()["code"]) == (404, "PRODUCT_NOT_FOUND")


async def test_one_that_was_accepted_before_that_was_known_fails_with_the_same_reason(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    herd.world.faults.add(Fault(FaultKind.OUTAGE, for_s=60))
    accepted = await api.post("/api/instances", json=B200)
    assert accepted.status_code == 201
    failed = await herd.settle(await herd.get(accepted.json()["id"]))
    assert failed.last_error is not None
    assert failed.last_error.code == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    assert ON_DEMAND_ONLY in reasons(dict(failed.last_error.details))
