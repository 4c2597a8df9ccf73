"""All that is wrong with a request is told at once, also what only the catalogue or the clock can judge."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd

PAST = {"until": "2020-01-01T00:00:00Z"}
NAME, GPUS = ("name", "INVALID_INSTANCE_NAME"), ("gpuNum", "INVALID_GPU_NUM")
REGION, REGIONS = ("region", "INVALID_REGION"), ("regions", "INVALID_REGION")
LEASE = ("lease.until", "INVALID_LEASE")
Problem = tuple[str, str]


def problems(reply: httpx.Response) -> set[Problem]:
    assert reply.status_code == 400, reply.text
    return {(it["field"], it["code"]) for it in reply.json()["errors"]}


@pytest.mark.parametrize("route", ["/api/instances", "/api/plans"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "", "gpuNum": 0, "region": "XX-1"}, {NAME, GPUS, REGION}),
        ({"name": "", "lease": PAST}, {NAME, LEASE}),
        ({"name": "", "region": "XX-1", "regions": ["XX-2"], "lease": PAST}, {NAME, REGION, REGIONS, LEASE}),
        ({"region": "XX-1", "regions": ["CN-HK-01", "XX-2"]}, {REGION, REGIONS}),
        # What is malformed is told once, for that.
        ({"name": "", "region": "", "lease": {"until": "soon"}}, {NAME, REGION, LEASE}),
        ({"name": "", "lease": {**PAST, "seconds": 600}}, {NAME, ("lease", "INVALID_LEASE")}),
        ({"gpus": 2, "region": "XX-1"}, {("gpus", "UNKNOWN_FIELD"), REGION}),
        ({"name": "", "region": "CN-HK-01", "lease": {"seconds": 600}}, {NAME}),
    ],
)
async def test_every_problem_is_told_whoever_judges_it(
    api: httpx.AsyncClient, herd: Herd, route: str, changes: dict[str, Any], expected: set[Problem]
) -> None:
    assert problems(await api.post(route, json={**GOOD, **changes})) == expected
    assert (await api.get("/api/instances")).json()["total"] == 0


@pytest.mark.parametrize("route", ["/api/instances", "/api/plans"])
async def test_a_lease_that_lies_behind_us_is_told_with_an_unknown_region(
    api: httpx.AsyncClient, route: str
) -> None:
    assert problems(await api.post(route, json={**GOOD, "region": "XX-1", "lease": PAST})) == {REGION, LEASE}


@pytest.mark.parametrize("route", ["/api/instances", "/api/plans"])
async def test_a_wrong_value_is_told_rather_than_that_nothing_fits(
    api: httpx.AsyncClient, route: str
) -> None:
    wanted = {**GOOD, "maxHourlyPrice": "0.00001", "lease": PAST}
    assert problems(await api.post(route, json=wanted)) == {LEASE}


async def test_what_cannot_be_judged_in_an_outage_is_left_out(api: httpx.AsyncClient, herd: Herd) -> None:
    herd.world.faults.add(Fault(FaultKind.OUTAGE, for_s=600))
    wanted = {**GOOD, "name": "", "region": "XX-1", "lease": PAST}
    assert problems(await api.post("/api/instances", json=wanted)) == {NAME, LEASE}


async def test_the_limit_of_the_key_is_told_with_the_rest(api: httpx.AsyncClient) -> None:
    made = await api.post("/api/keys", json={"scopes": ["write"], "limits": {"maxLeaseSeconds": 60}})
    as_limited = {"Authorization": f"Bearer {made.json()['key']}"}
    wanted = {**GOOD, "name": "", "lease": {"seconds": 600}}
    refused = await api.post("/api/instances", json=wanted, headers=as_limited)
    assert problems(refused) == {NAME, ("lease", "INVALID_LEASE")}


async def test_a_region_costs_one_question_however_many_are_refused(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    for _ in range(3):
        await api.post("/api/instances", json={**GOOD, "name": "", "region": "XX-1"})
    await api.post("/api/instances", json={**GOOD, "name": "", "lease": PAST})
    assert herd.world.calls.total() == herd.world.calls[ApiEndpoint.CLUSTERS.value] == 1


@pytest.mark.parametrize(
    ("route", "wanted", "expected"),
    [
        ("volumes", {"name": "", "region": "XX-1", "sizeGb": 0}, {"INVALID_NAME", "INVALID_SIZE_GB"}),
        ("prewarms", {"imageUrl": "", "region": "XX-1"}, {"INVALID_IMAGE"}),
    ],
)
async def test_other_bodies_with_a_region_are_judged_alike(
    api: httpx.AsyncClient, route: str, wanted: dict[str, Any], expected: set[str]
) -> None:
    told = problems(await api.post(f"/api/{route}", json=wanted))
    assert {code for _, code in told} == {*expected, "INVALID_REGION"}
