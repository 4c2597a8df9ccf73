"""What one key has made is not there for another: not by id, not by name, in no list and in no cache."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.entrypoints.route_scopes import ROUTE_SCOPES
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.usecases.events.manage_webhooks import create_endpoint
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key

HOOK = {"webhookUrl": "https://example.com/hook"}
# What a route's parameter is called, and which of Ada's things goes there.
NAMES = {"id_or_name": "instance", "operation_id": "operation", "job_id": "job", "delivery_id": "delivery"}
FOREIGN = sorted(
    (method, path)
    for (method, path), scope in ROUTE_SCOPES.items()
    if scope not in (None, "admin") and any(f"{{{name}}}" in path for name in NAMES)
)
IDS_OF_NOBODY = {"instance": "inst_" + "0" * 26, "operation": "op_0", "job": "job_0", "delivery": "msg_0"}


class People:
    """Ada and Bob, each with a key, and what Ada has."""

    def __init__(self, ada: dict[str, str], bob: dict[str, str], things: dict[str, str]):
        self.ada, self.bob, self.things = ada, bob, things


@pytest.fixture
async def people(api: httpx.AsyncClient, plane: Plane, herd: Herd) -> People:
    ada, bob = bearer(await make_key(plane)), bearer(await make_key(plane))
    wish = {**GOOD, **HOOK, "name": "adas"}
    instance = (await api.post("/api/instances", json=wish, headers=ada)).json()["id"]
    await herd.run_for(timedelta(minutes=2))
    operation = (await api.post(f"/api/instances/{instance}/stop", headers=ada)).json()["operationId"]
    jobs = (await api.get("/api/jobs", headers=ada)).json()["jobs"]
    deliveries = (await api.get("/api/webhooks/deliveries", headers=ada)).json()["deliveries"]
    things = {
        "instance": instance,
        "operation": operation,
        "job": jobs[0]["id"],
        "delivery": deliveries[0]["id"],
    }
    return People(ada, bob, things)


def filled(path: str, things: dict[str, str]) -> str:
    for name, thing in NAMES.items():
        path = path.replace(f"{{{name}}}", things[thing])
    return path


def said(reply: httpx.Response, thing: str) -> dict[str, Any]:
    """Return a problem without what differs from request to request."""
    body = reply.json()
    return {
        name: str(value).replace(thing, "ID")
        for name, value in body.items()
        if name not in ("requestId", "correlationId", "timestamp")
    }


async def test_another_key_s_id_is_answered_like_an_unknown_one_on_every_route(
    api: httpx.AsyncClient, people: People
) -> None:
    before = (await api.get(f"/api/instances/{people.things['instance']}")).json()
    for method, path in FOREIGN:
        name = next(name for name in NAMES if f"{{{name}}}" in path)
        mine, nobodys = people.things[NAMES[name]], IDS_OF_NOBODY[NAMES[name]]
        body = {"seconds": 60} if (method, path) == ("POST", "/api/instances/{id_or_name}/lease") else None
        foreign = await api.request(method, filled(path, people.things), headers=people.bob, json=body)
        unknown = await api.request(method, filled(path, IDS_OF_NOBODY), headers=people.bob, json=body)
        assert foreign.status_code == 404, (method, path)
        assert said(foreign, mine) == said(unknown, nobodys), (method, path)
    assert len(FOREIGN) >= 11
    assert (await api.get(f"/api/instances/{people.things['instance']}")).json() == before


async def test_the_owner_and_the_admin_see_it(api: httpx.AsyncClient, people: People) -> None:
    for method, path in FOREIGN:
        for headers in (people.ada, None):
            if method == "GET":
                reply = await api.get(filled(path, people.things), headers=headers)
                assert reply.status_code == 200, path


async def test_names_are_looked_up_among_what_the_key_may_see(api: httpx.AsyncClient, people: People) -> None:
    for path in ("/api/instances/adas", "/api/instances/adas/events", "/api/instances/adas?wait=ready"):
        assert (await api.get(path, headers=people.bob)).status_code == 404
    for what in ("start", "stop", "delete"):
        reply = await api.post(f"/api/instances/{what}", json={"instanceName": "adas"}, headers=people.bob)
        assert reply.json()["code"] == "INSTANCE_NOT_FOUND"
    bobs = (await api.post("/api/instances", json={**GOOD, "name": "adas"}, headers=people.bob)).json()
    assert (await api.get("/api/instances/adas", headers=people.bob)).json()["id"] == bobs["id"]
    assert (await api.get("/api/instances/adas", headers=people.ada)).json()["id"] == people.things[
        "instance"
    ]
    assert (await api.get("/api/instances/adas")).json()["code"] == "AMBIGUOUS_NAME"


async def test_lists_show_only_what_is_one_s_own_and_no_filter_widens_them(
    api: httpx.AsyncClient, people: People
) -> None:
    instance = people.things["instance"]
    lists = {
        "/api/instances": "instances",
        "/api/instances?name=adas": "instances",
        "/api/jobs": "jobs",
        f"/api/jobs?instanceId={instance}": "jobs",
        "/api/webhooks/deliveries": "deliveries",
        f"/api/webhooks/deliveries?instanceId={instance}": "deliveries",
        "/api/instances/comprehensive": "instances",
    }
    for path, key in lists.items():
        body = (await api.get(path, headers=people.bob)).json()
        assert (body[key], body["total"]) == ([], 0), path
        for headers in (people.ada, None):
            assert (await api.get(path, headers=headers)).json()["total"] > 0, path
    assert (await api.get("/api/jobs/stats", headers=people.bob)).json()["total"] == 0
    assert (await api.get("/api/jobs/stats", headers=people.ada)).json()["total"] > 0


async def test_kept_bytes_do_not_leak(api: httpx.AsyncClient, people: People, herd: Herd) -> None:
    path = f"/api/instances/{people.things['instance']}"
    for headers, status in ((people.ada, 200), (people.bob, 404), (people.ada, 200), (people.bob, 404)):
        assert (await api.get(path, headers=headers)).status_code == status
    assert herd.services.instance_cache.details.peek(people.things["instance"]) is not None
    # And the other way round: the one who may not see it asks first.
    herd.services.instance_cache.details.clear()
    for headers, status in ((people.bob, 404), (people.ada, 200)):
        assert (await api.get(path, headers=headers)).status_code == status
    herd.breaker_state = "OPEN"
    for headers, status in ((people.bob, 404), (people.ada, 200)):
        assert (await api.get(path, headers=headers)).status_code == status


async def test_comprehensive_shows_no_machine_of_others_and_keeps_a_reply_for_each(
    api: httpx.AsyncClient, people: People
) -> None:
    path = "/api/instances/comprehensive"
    bob = (await api.post("/api/instances", json=GOOD, headers=people.bob)).json()["id"]
    for headers, ids in ((people.ada, [people.things["instance"]]), (people.bob, [bob])):
        for hit in (False, True):
            body = (await api.get(path, headers=headers)).json()
            assert [it["id"] for it in body["instances"]] == ids
            assert body["performance"]["cacheHit"] is hit
            assert body["sources"]["novita"] == 0
    everybody = (await api.get(path)).json()
    assert {people.things["instance"], bob} <= {it["id"] for it in everybody["instances"]}


async def test_cached_ids_are_for_admins(api: httpx.AsyncClient, people: People) -> None:
    await api.get(f"/api/instances/{people.things['instance']}")
    caches = (await api.get("/api/cache/stats", headers=people.bob)).json()["caches"]
    assert {name for name, it in caches.items() if it["cachedIds"]} == set()
    caches = (await api.get("/api/cache/stats")).json()["caches"]
    assert caches["details"]["cachedIds"] == [people.things["instance"]]


async def test_what_goes_to_an_endpoint_is_for_admins(
    api: httpx.AsyncClient, people: People, herd: Herd, plane: Plane
) -> None:
    await create_endpoint(plane.services, "https://example.com/everything")
    mine = (await api.post("/api/instances", json={**GOOD, **HOOK}, headers=people.bob)).json()["id"]
    everything = (await api.get(f"/api/webhooks/deliveries?instanceId={mine}")).json()["deliveries"]
    own = (await api.get("/api/webhooks/deliveries", headers=people.bob)).json()["deliveries"]
    assert (len(everything), len(own)) == (2, 1)
    hidden = next(it["id"] for it in everything if it["endpointId"])
    for method, path in (("GET", ""), ("POST", "/replay")):
        reply = await api.request(method, f"/api/webhooks/deliveries/{hidden}{path}", headers=people.bob)
        assert reply.json()["code"] == "DELIVERY_NOT_FOUND"
    endpoint = (await plane.services.stores.endpoints.list_all())[0].id
    tested = await api.post("/api/webhooks/test", json={"endpointId": endpoint}, headers=people.bob)
    assert tested.status_code == 403


async def test_nobody_gives_himself_an_owner(api: httpx.AsyncClient, people: People) -> None:
    for field in ("owner", "upstream_id", "goal", "status", "phase", "expectedHourlyUsd"):
        reply = await api.post("/api/instances", json={**GOOD, field: "admin"}, headers=people.bob)
        assert (reply.status_code, reply.json()["code"]) == (400, "UNKNOWN_FIELD")


async def test_an_instance_of_a_revoked_key_goes_on_for_the_admin(
    api: httpx.AsyncClient, people: People, plane: Plane
) -> None:
    mine = (await api.post("/api/instances", json=GOOD, headers=people.bob)).json()
    await api.delete(f"/api/keys/{mine['owner']}")
    assert (await api.get(f"/api/instances/{mine['id']}", headers=people.bob)).status_code == 401
    assert (await api.get(f"/api/instances/{mine['id']}")).status_code == 200
    assert (await api.delete(f"/api/instances/{mine['id']}")).status_code == 202
