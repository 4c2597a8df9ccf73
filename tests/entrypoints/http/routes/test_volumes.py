"""`/api/volumes`: each is made once, whatever the network does, and costs until it is deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from gpuherd.domain.errors import CloudUnavailable
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.usecases.cloud.manage_volumes import INTENT
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key

VOLUMES = "/api/volumes"
DATA: dict[str, Any] = {"name": "data", "region": "US-CA-06", "sizeGb": 100}


async def made(api: httpx.AsyncClient, **more: Any) -> httpx.Response:
    return await api.post(VOLUMES, json={**DATA, **more})


def there(herd: Herd) -> list[str]:
    return [it.name for it in herd.world.volumes.listed()]


def lose(herd: Herd, kind: FaultKind, endpoint: ApiEndpoint = ApiEndpoint.NETWORK_STORAGE_CREATE) -> None:
    herd.world.faults.add(Fault(kind, count=1, endpoints=(endpoint,)))


async def test_a_volume_is_made_listed_with_its_price_and_deleted(api: httpx.AsyncClient, herd: Herd) -> None:
    reply = await made(api)
    assert reply.status_code == 201
    volume = reply.json()
    # 100 GB at 0.002 USD a day.
    assert (volume["name"], volume["region"], volume["hourlyPrice"]) == ("data", "US-CA-06", "0.008333333")
    listed = (await api.get(VOLUMES)).json()
    assert listed == {"volumes": [volume], "total": 1, "hourlyTotal": "0.008333333"}
    assert "volume" in {it["kind"] for it in (await api.get("/api/leftovers")).json()["items"]}
    removed = await api.delete(f"{VOLUMES}/{volume['id']}")
    assert removed.json() == {"id": volume["id"], "removed": True}
    assert (await api.get(VOLUMES)).json()["total"] == 0
    assert (await api.delete(f"{VOLUMES}/{volume['id']}")).json()["code"] == "VOLUME_NOT_FOUND"
    actions = [it["action"] for it in (await api.get("/api/audit")).json()["entries"]]
    assert actions[:2] == ["volume.delete", "volume.create"]


async def test_one_that_came_and_went_between_two_looks_of_the_meter_has_cost_something(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    await herd.meter_volumes()
    volume = (await made(api, sizeGb=4000)).json()
    now_usd = (await api.get("/api/costs")).json()["hourlyNow"]
    assert float(now_usd) == pytest.approx(float(volume["hourlyPrice"]), abs=1e-6)
    await herd.clock.sleep(60)
    await api.delete(f"{VOLUMES}/{volume['id']}")
    costs = (await api.get("/api/costs")).json()
    paid = float(sum(it.usd for it in herd.world.charges() if it.kind == "volume"))
    assert paid > 0.005
    assert abs(float(costs["byKind"]["volume"]) - paid) <= float(costs["uncertainty"]) + 1e-9
    assert float(costs["uncertainty"]) < paid / 10


async def test_bad_wishes_are_refused_before_anything_is_sent(api: httpx.AsyncClient, herd: Herd) -> None:
    wrong = {"name": " ", "sizeGb": 5, "colour": "red"}
    errors = (await api.post(VOLUMES, json=wrong)).json()["errors"]
    assert {it["code"] for it in errors} >= {"INVALID_NAME", "INVALID_SIZE_GB", "UNKNOWN_FIELD"}
    assert (await made(api, region="MARS-01")).json()["code"] == "INVALID_REGION"
    assert there(herd) == []


async def test_a_name_is_given_once(api: httpx.AsyncClient, herd: Herd) -> None:
    first = (await made(api)).json()
    again = await made(api)
    assert (again.status_code, again.json()["code"]) == (409, "VOLUME_EXISTS")
    assert again.json()["details"] == {"id": first["id"]}
    assert there(herd) == ["data"]


@pytest.mark.parametrize(
    "kind", [FaultKind.LOST_REPLY_AFTER_COMMIT, FaultKind.LOST_REPLY_BEFORE_COMMIT], ids=["made", "not-made"]
)
async def test_a_lost_answer_is_looked_after_by_name_and_never_repeated_at_once(
    kind: FaultKind, api: httpx.AsyncClient, herd: Herd
) -> None:
    lose(herd, kind)
    first = await made(api)
    if kind is FaultKind.LOST_REPLY_AFTER_COMMIT:
        assert first.status_code == 201
    else:
        assert (first.status_code, first.json()["code"]) == (503, "VOLUME_OUTCOME_UNKNOWN")
        assert first.json()["retryAfter"] <= 30
        assert (await made(api)).json()["code"] == "VOLUME_OUTCOME_UNKNOWN"
        assert herd.world.record.counts["network_storage_create"] == 1
        # By now it would have appeared.
        await herd.clock.sleep(herd.values.settling.settle_without_witness.total_seconds() + 1)
        assert (await made(api)).status_code == 201
    assert there(herd) == ["data"]
    assert await herd.flags.get(f"{INTENT}data") is None


async def test_a_create_that_appears_late_is_taken_for_ours_if_it_is_what_was_asked(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    lose(herd, FaultKind.LOST_REPLY_BEFORE_COMMIT)
    await made(api)
    herd.world.volumes.create("data", "us-ca-6", 100, herd.world.now())
    assert (await made(api, sizeGb=200)).json()["code"] == "VOLUME_EXISTS"
    assert (await made(api)).status_code == 201
    assert there(herd) == ["data"]


async def test_the_intent_is_durable_before_the_call_and_bars_a_second_one(
    api: httpx.AsyncClient, herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    begun, go_on = asyncio.Event(), asyncio.Event()
    create = herd.billing.create_volume

    async def slow(*order: Any) -> str:
        seen.append(await herd.flags.get(f"{INTENT}data"))
        begun.set()
        await go_on.wait()
        return await create(*order)

    monkeypatch.setattr(herd.billing, "create_volume", slow)
    first = asyncio.create_task(made(api))
    await begun.wait()
    assert seen[0] is not None
    assert (await made(api)).json()["code"] == "VOLUME_OUTCOME_UNKNOWN"
    go_on.set()
    assert (await first).status_code == 201
    assert there(herd) == ["data"]


async def test_of_two_creates_whose_first_looks_both_found_nothing_one_is_sent(
    api: httpx.AsyncClient, herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, go_on = asyncio.Event(), asyncio.Event()
    look = herd.billing.list_volumes

    async def slow_once() -> Any:
        monkeypatch.setattr(herd.billing, "list_volumes", look)
        found = await look()
        looked.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(herd.billing, "list_volumes", slow_once)
    late = asyncio.create_task(made(api))
    await looked.wait()
    first = (await made(api)).json()
    go_on.set()
    refused = (await late).json()
    assert (refused["code"], refused["details"]) == ("VOLUME_EXISTS", {"id": first["id"]})
    assert there(herd) == ["data"]
    assert await herd.flags.get(f"{INTENT}data") is None


async def test_a_create_that_cannot_look_once_more_is_not_sent_and_leaves_no_intent(
    api: httpx.AsyncClient, herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = herd.billing.list_volumes

    async def away() -> Any:
        raise CloudUnavailable("the cloud does not answer")

    async def away_from_now_on() -> Any:
        monkeypatch.setattr(herd.billing, "list_volumes", away)
        return await look()

    monkeypatch.setattr(herd.billing, "list_volumes", away_from_now_on)
    assert (await made(api)).status_code == 503
    monkeypatch.setattr(herd.billing, "list_volumes", look)
    assert herd.world.record.counts["network_storage_create"] == 0
    assert await herd.flags.get(f"{INTENT}data") is None
    assert (await made(api)).status_code == 201


async def test_a_refusal_leaves_nothing_behind(api: httpx.AsyncClient, herd: Herd) -> None:
    bare = next(it for it in herd.world.catalogue.clusters if not it.network_storage)
    reply = await made(api, region=bare.id)
    assert (reply.status_code, reply.json()["code"]) == (409, "VOLUMES_NOT_SUPPORTED")
    assert await herd.flags.get(f"{INTENT}data") is None
    assert (await made(api)).status_code == 201


async def test_a_delete_whose_answer_is_lost_is_looked_after(
    api: httpx.AsyncClient, herd: Herd, plane: Plane
) -> None:
    volume = (await made(api)).json()["id"]
    lose(herd, FaultKind.LOST_REPLY_BEFORE_COMMIT, ApiEndpoint.NETWORK_STORAGE_DELETE)
    assert (await api.delete(f"{VOLUMES}/{volume}")).status_code == 502
    lose(herd, FaultKind.LOST_REPLY_AFTER_COMMIT, ApiEndpoint.NETWORK_STORAGE_DELETE)
    assert (await api.delete(f"{VOLUMES}/{volume}")).status_code == 200
    reader = bearer(await make_key(plane, "read"))
    assert (await api.post(VOLUMES, json=DATA, headers=reader)).status_code == 403
    assert (await api.get(VOLUMES, headers=reader)).status_code == 200
