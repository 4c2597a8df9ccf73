"""Products, templates and regions: what can be rented, and no secret on the way."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import httpx
import pytest

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.support.herd import Herd

SECRET = "hunter2-in-a-template"


async def test_products_have_a_price_in_each_region_the_cheapest_first(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    reply = (await api.get("/api/products", params={"productName": "rtx 4090 24gb"})).json()
    assert reply["total"] == len(reply["products"]) >= 1
    for product in reply["products"]:
        assert product["productName"] == "RTX 4090 24GB"
        regions = [it for it in product["regions"] if it["available"]]
        prices = [Decimal(it["gpuHourlyPrice"]) for it in regions]
        assert prices == sorted(prices)
        assert Decimal(product["gpuHourlyPrice"]) == prices[0]
        assert all(it["gpuHourlyPrice"] == it["spotPrice"] for it in regions)


async def test_the_billing_mode_chooses_the_price(api: httpx.AsyncClient) -> None:
    params = {"productName": "RTX 4090 24GB", "billingMode": "onDemand"}
    (product, *_) = (await api.get("/api/products", params=params)).json()["products"]
    assert product["billingMode"] == "onDemand"
    assert all(it["gpuHourlyPrice"] == it["onDemandPrice"] != it["spotPrice"] for it in product["regions"])


async def test_what_is_sold_out_is_shown_and_not_available(api: httpx.AsyncClient, herd: Herd) -> None:
    herd.world.faults.add(Fault(FaultKind.SOLD_OUT))
    products = (await api.get("/api/products")).json()["products"]
    assert products
    assert {it["available"] for it in products} == {False}
    assert {it["gpuHourlyPrice"] for it in products} == {None}


async def test_products_that_nobody_sells_are_an_empty_list(api: httpx.AsyncClient) -> None:
    reply = await api.get("/api/products", params={"productName": "GTX 9999"})
    assert reply.json() == {"products": [], "total": 0}


@pytest.mark.parametrize("query", ["billingMode=monthly", "productName="])
async def test_filters_that_make_no_sense_are_refused(api: httpx.AsyncClient, query: str) -> None:
    reply = await api.get(f"/api/products?{query}")
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_PARAMETER")


def hide_a_secret(herd: Herd) -> None:
    templates = herd.world.account.templates
    templates["101"] = replace(
        templates["101"], envs=(("TOKEN", SECRET),), start_command=f"serve --key {SECRET}"
    )


async def test_templates_show_the_names_of_variables_but_not_their_values(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    hide_a_secret(herd)
    everything = await api.get("/api/templates")
    one = await api.get("/api/templates/101")
    assert SECRET not in everything.text + one.text
    assert one.json()["envNames"] == ["TOKEN"]
    assert one.json()["problem"] is None
    assert one.json() in everything.json()["templates"]
    assert everything.json()["total"] == len(herd.world.account.templates)


async def test_a_template_that_cannot_be_used_is_shown_with_its_problem(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    templates = herd.world.account.templates
    templates["101"] = replace(templates["101"], image="")
    reply = await api.get("/api/templates/101")
    assert reply.status_code == 200
    assert "names no image" in reply.json()["problem"]


async def test_an_unknown_template_is_not_found(api: httpx.AsyncClient) -> None:
    reply = await api.get("/api/templates/999999")
    assert (reply.status_code, reply.json()["code"]) == (404, "TEMPLATE_NOT_FOUND")


async def test_regions_are_listed_under_all_their_names(api: httpx.AsyncClient, herd: Herd) -> None:
    reply = (await api.get("/api/regions")).json()
    assert reply["total"] == len(herd.world.catalogue.clusters)
    hong_kong = next(it for it in reply["regions"] if it["code"] == "CN-HK-01")
    assert hong_kong["clusterId"]
    assert hong_kong["label"]
    assert "RTX 4090 24GB" in hong_kong["gpuNames"]


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/api/products", ApiEndpoint.PRODUCTS),
        ("/api/templates", ApiEndpoint.TEMPLATES),
        ("/api/templates/101", ApiEndpoint.TEMPLATE),
        ("/api/regions", ApiEndpoint.CLUSTERS),
    ],
)
async def test_the_catalogue_is_asked_once_and_then_remembered(
    api: httpx.AsyncClient, herd: Herd, path: str, endpoint: ApiEndpoint
) -> None:
    first = await api.get(path)
    again = await api.get(path)
    assert again.content == first.content
    assert herd.world.calls[endpoint.value] == 1


async def test_a_catalogue_that_cannot_be_asked_is_503(api: httpx.AsyncClient, herd: Herd) -> None:
    herd.world.faults.add(Fault(FaultKind.OUTAGE))
    for path in ("/api/products", "/api/templates", "/api/templates/101", "/api/regions"):
        reply = await api.get(path)
        assert reply.status_code == 503, path
        assert "retry-after" in reply.headers
