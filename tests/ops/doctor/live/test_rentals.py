"""The doctor's rental as the server is asked for it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_transport import Reply, Request
from gpuherd.domain.cloud.offer import Offer
from gpuherd.ops.doctor_results import CannotLook
from gpuherd.ops.live_rentals import (
    LABEL,
    RentPlan,
    ServerRentals,
    plan_of,
)

PLAN = RentPlan(("RTX 3090 24GB",), "101", Decimal("0.11"))


class RecordingTransport:
    """Answers every question alike, and remembers them."""

    def __init__(self, answer: dict[str, Any], status: int = 200) -> None:
        self.asked: list[Request] = []
        self._reply = Reply(status, {}, json.dumps(answer).encode())

    async def send(self, request: Request) -> Reply:
        self.asked.append(request)
        return self._reply

    async def listen(self, request: Request) -> Any:
        raise AssertionError("nobody listens")

    async def close(self) -> None: ...


def an_offer(name: str, usd: str, *, available: bool = True) -> Offer:
    return Offer(
        product_id=name,
        product_name=name,
        region="US-CA-06",
        cluster_id="us-ca-6",
        available=available,
        stock="normal",
        spot_usd=Decimal(usd),
        on_demand_usd=None,
        cpu_per_gpu=1,
        memory_gb_per_gpu=1,
        disk_gb_min=10,
        disk_gb_max=100,
    )


@pytest.mark.proves("E8")
async def test_what_it_rents_ends_by_itself_and_has_a_price_limit() -> None:
    transport = RecordingTransport({"id": "inst_1", "name": "x", "status": "creating"})
    async with AsyncGpuherd("http://127.0.0.1:1", "key", transport=transport) as herd:
        await ServerRentals(herd).create(PLAN)
    (request,) = transport.asked
    assert request.body is not None
    assert request.body["lease"] == {"seconds": 300, "then": "delete"}
    assert request.body["maxHourlyPrice"] == "0.11"
    assert request.body["labels"] == dict([LABEL])


async def test_a_server_that_refuses_is_told_in_its_words() -> None:
    transport = RecordingTransport({"code": "QUOTA_EXCEEDED", "detail": "no more GPUs"}, 429)
    async with AsyncGpuherd("http://127.0.0.1:1", "key", transport=transport, max_retries=0) as herd:
        with pytest.raises(CannotLook, match="gpuherd server"):
            await ServerRentals(herd).create(PLAN)


def test_the_cheapest_three_are_named_and_none_above_is_taken() -> None:
    offers = [
        an_offer("A", "0.5"),
        an_offer("B", "0.1"),
        an_offer("C", "0.2"),
        an_offer("D", "0.05", available=False),
        an_offer("E", "0.3"),
        an_offer("B", "0.4"),
    ]
    plan = plan_of(offers, "101")
    assert (plan.product_names, plan.price_max) == (("B", "C", "E"), Decimal("0.3"))


def test_where_nothing_is_sold_nothing_is_planned() -> None:
    with pytest.raises(CannotLook):
        plan_of([an_offer("A", "0.5", available=False)], "101")
