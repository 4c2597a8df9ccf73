"""Money on the page that Prometheus scrapes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx

from gpuherd.domain.costs.span import CostKind
from tests.support.herd import Herd
from tests.support.metered import HOUR, edge, meter


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
