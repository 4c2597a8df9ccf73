"""Money on the page that Prometheus scrapes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from gpuherd.adapters.prometheus_page import MONEY
from gpuherd.domain.money.usage_span import CostKind
from gpuherd.entrypoints.use_case_access import Plane
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key
from tests.support.metered import HOUR, edge, meter
from tests.support.scraping import read_page

BUDGET = {"name": "secret plans", "amount": "100", "period": "month", "scope": {"all": True}}


async def scraped(api: httpx.AsyncClient) -> dict[str, float]:
    page = (await api.get("/metrics")).text
    lines = [it.rsplit(" ", 1) for it in page.splitlines() if it.startswith(("gpuherd_usd", "gpuherd_waste"))]
    return {name: float(value) for name, value in lines}


async def test_what_was_spent_and_what_goes_on_can_be_drawn(api: httpx.AsyncClient, herd: Herd) -> None:
    now = herd.clock.now()
    await meter(herd, "m1", now - 10 * HOUR, usd="0.5", instance_id="inst_1", owner="admin")
    await meter(
        herd, "m1", now - 10 * HOUR, usd="0.1", kind=CostKind.DISK, instance_id="inst_1", owner="admin"
    )
    await meter(herd, "m2", now - 10 * HOUR, 3)
    assert await scraped(api) == {
        'gpuherd_usd_total{kind="gpu"}': 8.0,
        'gpuherd_usd_total{kind="disk"}': 1.0,
        'gpuherd_usd_total{kind="volume"}': 0.0,
        "gpuherd_usd_per_hour": 0.6,
        'gpuherd_waste_usd_total{cause="unbound"}': 3.0,
        'gpuherd_waste_usd_total{cause="failed_boots"}': 0.0,
        'gpuherd_waste_usd_total{cause="after_end"}': 0.0,
        'gpuherd_waste_usd_total{cause="overlap"}': 0.0,
    }


@pytest.mark.parametrize("scope", ["read", "write"])
async def test_who_is_no_admin_reads_the_page_without_the_money_and_the_budgets_of_the_account(
    api: httpx.AsyncClient, herd: Herd, plane: Plane, scope: str
) -> None:
    await meter(herd, "m1", herd.clock.now() - HOUR)
    assert (await api.post("/api/budgets", json=BUDGET)).status_code == 201
    whole = read_page((await api.get("/metrics")).content)
    reply = await api.get("/metrics", headers=bearer(await make_key(plane, scope)))
    assert reply.status_code == 200
    assert not any(word in reply.text for word in ("usd", "budget_ratio", "secret plans"))
    assert set(whole.families) - set(read_page(reply.content).families) == MONEY
    assert read_page(reply.content).value("gpuherd_instances", status="running") == 0


async def test_any_admin_reads_the_money_of_the_account(
    api: httpx.AsyncClient, herd: Herd, plane: Plane
) -> None:
    await meter(herd, "m1", herd.clock.now() - HOUR)
    assert (await api.post("/api/budgets", json=BUDGET)).status_code == 201
    reply = await api.get("/metrics", headers=bearer(await make_key(plane, "admin")))
    page = read_page(reply.content)
    assert page.value("gpuherd_usd_total", kind="gpu") == 1
    assert page.value("gpuherd_budget_ratio", budget="secret plans") >= 0


async def test_a_total_never_falls(api: httpx.AsyncClient, herd: Herd) -> None:
    now = herd.clock.now()
    await meter(herd, "m1", now - HOUR)
    assert (await scraped(api))['gpuherd_usd_total{kind="gpu"}'] == 1.0
    # Its end is learnt late, and lies half an hour back.
    (open_span,) = await herd.stores.costs.open_spans()
    ended = replace(open_span.span, ended=edge(now - HOUR / 2), ended_by="stopped")
    await herd.stores.metered_costs.write([ended], {"m1": open_span.subject}, now)
    await herd.clock.sleep(timedelta(minutes=2).total_seconds())
    assert (await scraped(api))['gpuherd_usd_total{kind="gpu"}'] == 1.0
