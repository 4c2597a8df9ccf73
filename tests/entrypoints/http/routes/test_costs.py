"""`/api/costs`, `/api/leftovers`, `/api/balance`: shapes, who may ask, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import httpx
import pytest

from gpuherd.domain.money.usage_span import CostKind
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key
from tests.support.metered import HOUR, meter

START = datetime(2026, 11, 10, tzinfo=UTC)
ZERO_WASTE = {"unbound": "0", "failedBoots": "0", "overlap": "0", "afterEnd": "0"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START + timedelta(days=3), auto=True)


def codes(reply: httpx.Response) -> set[str]:
    assert reply.status_code == 400, reply.text
    return {it["code"] for it in reply.json()["errors"]}


async def test_nothing_was_spent_yet(api: httpx.AsyncClient) -> None:
    found = (await api.get("/api/costs")).json()
    assert (found["total"], found["uncertainty"], found["hourlyNow"]) == ("0", "0", "0")
    assert found["byKind"] == {"gpu": "0", "disk": "0", "volume": "0"}
    assert found["waste"] == ZERO_WASTE
    assert (found["groups"], found["groupsLeftOut"], found["billed"]) == ([], 0, None)


async def test_a_period_is_cut_at_its_ends_and_may_lie_ahead(api: httpx.AsyncClient, herd: Herd) -> None:
    await meter(herd, "m1", START + 20 * HOUR, 8, instance_id="inst_1", owner="admin")
    await meter(
        herd, "m1", START + 40 * HOUR, usd="0.25", kind=CostKind.DISK, instance_id="inst_1", owner="admin"
    )
    params = {"from": "2026-11-11", "to": "2026-11-11T02:00:00Z"}
    assert (await api.get("/api/costs", params=params)).json()["total"] == "2"
    found = (await api.get("/api/costs", params={"from": "2026-11-11", "to": "2027-01-01"})).json()
    assert found["byKind"] == {"gpu": "4", "disk": "8", "volume": "0"}
    assert (found["total"], found["hourlyNow"]) == ("12", "0.25")
    assert (found["from"], found["to"]) == ("2026-11-11T00:00:00.000000Z", "2027-01-01T00:00:00.000000Z")


async def test_a_report_is_divided_by_what_was_asked_for(api: httpx.AsyncClient, herd: Herd) -> None:
    for n, team in enumerate(("nlp", "nlp", "vision")):
        its: Any = {"instance_id": f"inst_{n}", "owner": "admin", "labels": {"team": team}}
        await meter(herd, f"m{n}", START + (1 + n * 24) * HOUR, 1 + n, doubt_s=36, **its)
    await meter(herd, "m9", START, 10)

    async def groups(by: str) -> dict[str | None, str]:
        params = {"from": "2026-11-01", "groupBy": by}
        found = (await api.get("/api/costs", params=params)).json()
        assert found["groupBy"] == by
        assert sum(Decimal(it["total"]) for it in found["groups"]) == Decimal(found["total"]) == 16
        return {it["value"]: it["total"] for it in found["groups"]}

    assert await groups("label:team") == {None: "10", "nlp": "3", "vision": "3"}
    assert await groups("label:nothing") == {None: "16"}
    assert await groups("instance") == {None: "10", "inst_2": "3", "inst_1": "2", "inst_0": "1"}
    assert await groups("key") == {None: "10", "admin": "6"}
    assert await groups("product") == {None: "10", "RTX 4090 24GB": "6"}
    assert await groups("region") == {None: "10", "CN-HK-01": "6"}
    assert await groups("day") == {"2026-11-10": "11", "2026-11-11": "2", "2026-11-12": "3"}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"from": "yesterday"}, {"INVALID_FROM"}),
        ({"from": "2026-13-01"}, {"INVALID_FROM"}),
        ({"to": "0001-01-01"}, {"INVALID_TO"}),
        ({"from": "0001-01-01T00:00:00+14:00"}, {"INVALID_FROM"}),
        ({"to": "9999-12-31T23:59:59-14:00"}, {"INVALID_TO"}),
        ({"from": "2026-11-10", "to": "2026-11-10"}, {"INVALID_TO"}),
        ({"from": "2026-11-10", "to": "2026-11-09"}, {"INVALID_TO"}),
        ({"from": "2026-11-14"}, {"INVALID_FROM"}),
        ({"groupBy": "owner"}, {"INVALID_GROUP_BY"}),
        ({"groupBy": "label:"}, {"INVALID_GROUP_BY"}),
        ({"groupBy": "label"}, {"INVALID_GROUP_BY"}),
        ({"since": "2026-11-10"}, {"INVALID_PARAMETER"}),
        ({"from": "x", "to": "y", "groupBy": "z"}, {"INVALID_FROM", "INVALID_TO", "INVALID_GROUP_BY"}),
    ],
)
async def test_every_problem_of_a_question_is_told_at_once(
    api: httpx.AsyncClient, params: dict[str, str], expected: set[str]
) -> None:
    assert codes(await api.get("/api/costs", params=params)) == expected


@pytest.mark.parametrize("day", ["", "today", "2026-11-31", "2026-11-14", "2026-11-12T00:00:00Z", "20261112"])
async def test_a_bill_is_of_a_day_that_has_begun(api: httpx.AsyncClient, day: str) -> None:
    assert codes(await api.get("/api/costs/bill", params={"day": day})) == {"INVALID_DAY"}
    assert codes(await api.post("/api/costs/reconcile", json={"day": day})) == {"INVALID_DAY"}


async def test_a_day_before_the_ledger_could_begin_is_refused_for_its_year(api: httpx.AsyncClient) -> None:
    words = "day must not lie before the year 2000"
    refused = await api.post("/api/costs/reconcile", json={"day": "1999-01-01"})
    assert (refused.json()["code"], refused.json()["detail"]) == ("INVALID_DAY", words)
    asked = await api.get("/api/costs/bill", params={"day": "1999-01-01"})
    assert asked.json()["detail"] == words


async def test_a_reconcile_without_a_day_is_refused(api: httpx.AsyncClient) -> None:
    assert codes(await api.post("/api/costs/reconcile", json={"dya": 5})) == {"INVALID_DAY", "UNKNOWN_FIELD"}
    assert codes(await api.post("/api/costs/reconcile", json={"day": 5})) == {"INVALID_DAY"}


async def test_a_day_beside_the_bill(api: httpx.AsyncClient, herd: Herd) -> None:
    await meter(herd, "m1", START, 2, instance_id="inst_1", owner="admin", doubt_s=36)
    before = (await api.get("/api/costs/bill", params={"day": "2026-11-10"})).json()
    assert before["fetchedAt"] is None
    assert before["rows"][0] | {"uncertainty": ""} == {
        "cloudInstanceId": "m1",
        "instanceId": "inst_1",
        "metered": "2",
        "billed": None,
        "drift": None,
        "uncertainty": "",
    }
    after = (await api.post("/api/costs/reconcile", json={"day": "2026-11-10"})).json()
    assert after["total"] == {"metered": "2", "billed": "0", "drift": "2"}
    assert (await api.get("/api/costs/bill", params={"day": "2026-11-10"})).json() == after
    assert (await api.get("/api/costs/bill")).json()["day"] == "2026-11-12"
    audit = (await api.get("/api/audit")).json()["entries"]
    assert ("costs.reconcile", "2026-11-10") in {(it["action"], it["target"]) for it in audit}


async def test_what_is_left_and_how_long_it_lasts(api: httpx.AsyncClient, herd: Herd) -> None:
    herd.world.deposit = Fraction(7)
    found = (await api.get("/api/balance")).json()
    assert (found["available"], found["hourlyNow"], found["runwayHours"]) == ("7", "0", None)
    await meter(herd, "m1", START, usd="2")
    assert (await api.get("/api/balance")).json()["runwayHours"] == 3.5


async def test_a_provider_that_does_not_answer_is_said_to_be_away(api: httpx.AsyncClient, herd: Herd) -> None:
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.BALANCE, ApiEndpoint.BILL)))
    assert (await api.get("/api/balance")).status_code in (502, 503)
    assert (await api.post("/api/costs/reconcile", json={"day": "2026-11-10"})).status_code in (502, 503)


async def test_leftovers_name_what_costs_and_what_to_do(api: httpx.AsyncClient, herd: Herd) -> None:
    await meter(herd, "m1", START, usd="0.2", instance_id="inst_1", owner="admin", name="trainer")
    herd.world.volumes.create("data", "us-ca-6", 120, herd.world.now())
    found = (await api.get("/api/leftovers")).json()
    machine, volume = found["items"]
    assert (machine["kind"], machine["name"], machine["hourlyPrice"]) == ("running", "trainer", "0.2")
    assert machine["costSoFar"] == "14.4"
    assert (volume["kind"], volume["name"], volume["hourlyPrice"]) == ("volume", "data", "0.01")
    assert found["hourlyTotal"] == "0.21"
    assert all(it["suggestion"] for it in found["items"])


async def test_a_key_that_is_not_admin_sees_only_its_own_money(
    api: httpx.AsyncClient, plane: Plane, herd: Herd
) -> None:
    made = await make_key(plane, "read")
    mine: Any = {"instance_id": "inst_1", "owner": made.key.id}
    await meter(herd, "m1", START, usd="0.2", **mine)
    await meter(herd, "m2", START, usd="5", instance_id="inst_2", owner="admin")
    await meter(herd, "m3", START, usd="7")
    headers = bearer(made)
    for by in ("instance", "key", "day", "label:team", "product", "region", "lineage"):
        params = {"from": "2026-11-01", "groupBy": by}
        found = (await api.get("/api/costs", params=params, headers=headers)).json()
        assert (found["total"], found["hourlyNow"]) == ("14.4", "0.2"), by
        assert (found["waste"]["unbound"], found["billed"]) == ("0", None)
    leftovers = (await api.get("/api/leftovers", headers=headers)).json()
    assert [it["instanceId"] for it in leftovers["items"]] == ["inst_1"]
    for path in ("/api/balance", "/api/costs/bill"):
        assert (await api.get(path, headers=headers)).status_code == 403
    reply = await api.post("/api/costs/reconcile", json={"day": "2026-11-10"}, headers=headers)
    assert reply.status_code == 403
