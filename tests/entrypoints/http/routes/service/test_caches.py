"""`/api/cache`: statistics that add up, and forgetting on request."""

from __future__ import annotations

import httpx
import pytest

from tests.entrypoints.http.conftest import GOOD
from tests.support.fake_clock import FakeClock

NAMES = [
    *("details", "states", "comprehensive", "listing", "offers", "regions", "templates", "template_misses"),
    *("balance", "volumes", "prewarms"),
]


async def stats(api: httpx.AsyncClient, name: str) -> dict[str, object]:
    found = (await api.get("/api/cache/stats")).json()["caches"][name]
    assert isinstance(found, dict)
    return found


async def launched(api: httpx.AsyncClient) -> str:
    return str((await api.post("/api/instances", json=GOOD)).json()["id"])


async def test_statistics_tell_of_every_cache(api: httpx.AsyncClient) -> None:
    instance_id = await launched(api)
    for _ in range(4):
        await api.get(f"/api/instances/{instance_id}")
    reply = (await api.get("/api/cache/stats")).json()
    assert list(reply["caches"]) == NAMES
    assert reply["trackedInstances"] == 1
    assert reply["caches"]["details"] == {
        "size": 1,
        "hits": 3,
        "misses": 1,
        "sets": 1,
        "evictions": 0,
        "hitRatio": 0.75,
        "ttlSeconds": 30,
        "cachedIds": [instance_id],
    }
    assert reply["caches"]["states"]["ttlSeconds"] == 60
    assert reply["caches"]["templates"]["cachedIds"] == ["101"]


async def test_at_most_a_hundred_ids_are_shown_the_latest_first(api: httpx.AsyncClient) -> None:
    ids = [await launched(api) for _ in range(105)]
    for instance_id in ids:
        await api.get(f"/api/instances/{instance_id}")
    found = await stats(api, "details")
    assert found["size"] == 105
    assert found["cachedIds"] == ids[:4:-1]


async def test_everything_or_one_cache_can_be_forgotten(api: httpx.AsyncClient) -> None:
    instance_id = await launched(api)
    await api.get(f"/api/instances/{instance_id}")
    one = await api.post("/api/cache/clear", json={"cacheName": "details"})
    assert one.json() == {"cleared": ["details"]}
    assert ((await stats(api, "details"))["size"], (await stats(api, "states"))["size"]) == (0, 1)
    everything = await api.post("/api/cache/clear")
    assert everything.json() == {"cleared": NAMES}
    reply = (await api.get("/api/cache/stats")).json()
    assert {it["size"] for it in reply["caches"].values()} == {0}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"cacheName": "nope"}, 404, "CACHE_NOT_FOUND"),
        ({"cacheName": ""}, 404, "CACHE_NOT_FOUND"),
        ({"cacheName": 5}, 400, "INVALID_CACHE_NAME"),
        ({"name": "details"}, 400, "UNKNOWN_FIELD"),
        ([], 400, "INVALID_BODY"),
    ],
)
async def test_a_mistake_forgets_nothing(
    api: httpx.AsyncClient, body: object, status: int, code: str
) -> None:
    instance_id = await launched(api)
    await api.get(f"/api/instances/{instance_id}")
    reply = await api.post("/api/cache/clear", json=body)
    assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert (await stats(api, "details"))["size"] == 1


async def test_a_cleanup_throws_out_what_is_no_longer_fresh(api: httpx.AsyncClient, clock: FakeClock) -> None:
    instance_id = await launched(api)
    await api.get(f"/api/instances/{instance_id}")
    assert (await api.post("/api/cache/cleanup")).json() == {"removed": 0}
    await clock.sleep(45)
    assert (await api.post("/api/cache/cleanup")).json() == {"removed": 1}
    assert ((await stats(api, "details"))["size"], (await stats(api, "states"))["size"]) == (0, 1)
