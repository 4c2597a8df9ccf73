"""Spans of cost for tests: written down as a list of the cloud's machines would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from gpuherd.adapters.stores.usage_span_writes import write_spans
from gpuherd.domain.money.period import day_start
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    CostSubject,
    Edge,
    PriceSource,
    Rate,
    nano_usd,
)
from tests.support.herd import Herd

HOUR = timedelta(hours=1)


def edge(moment: datetime, doubt_s: float = 0) -> Edge:
    doubt = timedelta(seconds=doubt_s)
    return Edge(moment - doubt, moment + doubt)


async def meter(
    herd: Herd,
    cloud_id: str,
    begin: datetime,
    hours: float | None = None,
    *,
    usd: str = "1",
    kind: CostKind = CostKind.GPU,
    instance_id: str | None = None,
    owner: str | None = None,
    labels: Mapping[str, str] | None = None,
    doubt_s: float = 0,
    name: str = "",
) -> None:
    """Write one span at that rate; without `hours` it goes on."""
    ended = None if hours is None else edge(begin + hours * HOUR, doubt_s)
    rate = Rate(nano_usd(Decimal(usd)), PriceSource.RENTAL)
    span = CostSpan(cloud_id, kind, rate, edge(begin, doubt_s), "test", ended, "test" if ended else "")
    subject = CostSubject(
        cloud_id,
        instance_id,
        owner if instance_id else None,
        begin,
        name=name or cloud_id,
        product_name="RTX 4090 24GB",
        region="CN-HK-01",
        billing_mode="spot",
        labels=labels or {},
        usable_at=begin,
    )
    now = herd.clock.now()
    await herd.database.write(lambda c: write_spans(c, [replace(span)], {cloud_id: subject}, now))


async def spend(herd: Herd) -> None:
    """Write down a few days: two instances, a stranger, a stopped disk, and something that goes on."""
    today = day_start(herd.clock.now())
    first: Any = {"instance_id": "inst_1", "owner": "admin", "labels": {"team": "nlp"}, "name": "trainer"}
    other: Any = {
        "instance_id": "inst_2",
        "owner": "admin",
        "labels": {"team": "vision"},
        "name": "=cmd|x\u202e",
    }
    await meter(herd, "m1", today - 47 * HOUR, 30, usd="0.2", doubt_s=2, **first)
    await meter(herd, "m1", today - 5 * HOUR, usd="0.2", **first)
    await meter(herd, "m2", today - 40 * HOUR, 3.5, usd="0.35", doubt_s=15, **other)
    await meter(herd, "m2", today - 40 * HOUR, usd="0.02", kind=CostKind.DISK, **other)
    await meter(herd, "m3", today - 30 * HOUR, 1, usd="1.6", name="somebody-elses")
