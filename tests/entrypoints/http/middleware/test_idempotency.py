"""`Idempotency-Key` on every mutation: said twice, it is done once, and the second reply is the first."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.entrypoints.http import cloud_routes
from gpuherd.entrypoints.route_scopes import NATIVE_CLAIMS, ROUTE_SCOPES
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import ApiEndpoint
from gpuherd.usecases.service.prune_records import clear_expired
from gpuherd.usecases.services import Services
from tests.entrypoints.http.conftest import GOOD
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key
from tests.support.unmanaged_machines import rent_outside_gpuherd

ONE = {"Idempotency-Key": "one"}


def replayed(reply: httpx.Response) -> bool:
    return reply.headers.get("idempotency-replayed") == "true"


@pytest.fixture
async def running(api: httpx.AsyncClient, herd: Herd) -> str:
    instance: str = (await api.post("/api/instances", json=GOOD)).json()["id"]
    await herd.run_for(timedelta(minutes=2))
    return instance


async def test_a_stop_a_start_and_a_delete_are_one_operation_each(
    api: httpx.AsyncClient, herd: Herd, running: str
) -> None:
    path = f"/api/instances/{running}"
    first = {}
    for method, what in (("POST", "/stop"), ("POST", "/start"), ("DELETE", "")):
        headers = {"Idempotency-Key": f"my {what}".replace(" ", "-")}
        first[method, what] = await api.request(method, path + what, headers=headers)
        again = await api.request(method, path + what, headers=headers)
        assert (first[method, what].status_code, again.status_code) == (202, 202)
        assert (replayed(first[method, what]), replayed(again)) == (False, True)
        assert again.json() == first[method, what].json()
        assert again.headers["location"] == first[method, what].headers["location"]
        await herd.run_for(timedelta(minutes=2))
    # Long after, and with the instance gone, each still answers with its own operation.
    for (method, what), reply in first.items():
        headers = {"Idempotency-Key": f"my {what}".replace(" ", "-")}
        late = await api.request(method, path + what, headers=headers)
        assert late.json()["operationId"] == reply.json()["operationId"]
        assert replayed(late)
    assert len(herd.rows(herd.tables.operation)) == 3


async def test_by_name_too_even_when_the_name_has_become_another_s(
    api: httpx.AsyncClient, herd: Herd, running: str
) -> None:
    body = {"instanceName": "job"}
    first = await api.post("/api/instances/delete", json=body, headers=ONE)
    await herd.run_for(timedelta(minutes=2))
    await api.post("/api/instances", json=GOOD)
    again = await api.post("/api/instances/delete", json=body, headers=ONE)
    assert again.json()["operationId"] == first.json()["operationId"]
    assert (await api.get("/api/instances/job")).json()["goal"] == "running"


async def test_twenty_starts_at_once_with_one_key_are_one_start_and_all_hear_of_it(
    api: httpx.AsyncClient, herd: Herd, running: str
) -> None:
    await api.post(f"/api/instances/{running}/stop")
    await herd.run_for(timedelta(minutes=2))
    path = f"/api/instances/{running}/start"
    replies = await asyncio.gather(*(api.post(path, headers=ONE) for _ in range(20)))
    assert {it.status_code for it in replies} == {202}
    assert len({it.json()["operationId"] for it in replies}) == 1
    assert sum(not replayed(it) for it in replies) == 1
    await herd.run_for(timedelta(minutes=2))
    assert herd.world.calls[ApiEndpoint.START.value] == 1
    other = await api.post(path, headers={"Idempotency-Key": "two"})
    assert other.status_code == 409


async def test_a_second_stop_under_another_word_is_remembered_under_it(
    api: httpx.AsyncClient, herd: Herd, running: str
) -> None:
    path = f"/api/instances/{running}/stop"
    first = await api.post(path)
    second = await api.post(path, headers=ONE)
    await herd.run_for(timedelta(minutes=2))
    late = await api.post(path, headers=ONE)
    operations = {it.json()["operationId"] for it in (first, second, late)}
    assert (len(operations), late.status_code) == (1, 202)
    assert (await api.post(path)).status_code == 409


@pytest.mark.proves("F25")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/instances", {**GOOD, "gpuNum": 2}),
        ("/api/instances/{id}/stop", {}),
        ("/api/instances/stop", {"instanceName": "job"}),
        ("/api/keys", {"scopes": ["read"]}),
        ("/api/sync", {}),
    ],
)
async def test_one_word_for_two_requests_is_422_whatever_they_are(
    api: httpx.AsyncClient, herd: Herd, running: str, path: str, body: dict[str, Any]
) -> None:
    first = await api.post("/api/instances", json=GOOD, headers=ONE)
    before = [herd.rows(table) for table in (herd.tables.instance, herd.tables.api_key)]
    reply = await api.post(path.replace("{id}", running), json=body, headers=ONE)
    assert (reply.status_code, reply.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert [herd.rows(table) for table in (herd.tables.instance, herd.tables.api_key)] == before
    again = await api.post("/api/instances", json=GOOD, headers=ONE)
    assert (again.json()["id"], replayed(again)) == (first.json()["id"], True)


async def test_a_word_that_another_request_has_is_422_for_a_create_too(api: httpx.AsyncClient) -> None:
    assert (await api.post("/api/cache/cleanup", headers=ONE)).status_code == 200
    reply = await api.post("/api/instances", json=GOOD, headers=ONE)
    assert (reply.status_code, reply.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_the_order_of_fields_and_blanks_do_not_count(api: httpx.AsyncClient) -> None:
    bodies = (b'{"scopes":["read"],"label":"x"}', b' { "label": "x", "scopes": [ "read" ] } ')
    first, again = [await api.post("/api/keys", content=body, headers=ONE) for body in bodies]
    assert (first.json()["id"], replayed(again)) == (again.json()["id"], True)


@pytest.mark.proves("F27")
async def test_another_key_s_word_is_another_word(api: httpx.AsyncClient, plane: Plane) -> None:
    keys = [bearer(await make_key(plane)) for _ in range(2)]
    made = [await api.post("/api/instances", json=GOOD, headers={**key, **ONE}) for key in keys]
    assert len({it.json()["id"] for it in made}) == 2
    stopped = [await api.post("/api/sync", headers={**key, **ONE}) for key in (*keys, *keys)]
    assert [it.status_code for it in stopped] == [422] * 4


async def test_a_key_s_replay_is_the_same_key_without_its_secret(api: httpx.AsyncClient, herd: Herd) -> None:
    body = {"scopes": ["read"]}
    first = await api.post("/api/keys", json=body, headers=ONE)
    again = await api.post("/api/keys", json=body, headers=ONE)
    assert (again.status_code, again.headers["location"]) == (201, first.headers["location"])
    assert again.json() == {**first.json(), "key": None, "webhookSecret": None}
    assert len(herd.rows(herd.tables.api_key)) == 1
    for secret in (first.json()["key"], first.json()["webhookSecret"]):
        assert secret not in repr(herd.rows(herd.tables.claim))


async def test_an_endpoint_s_secret_is_not_kept_either(api: httpx.AsyncClient, herd: Herd) -> None:
    body = {"url": "https://example.com/"}
    first = await api.post("/api/webhooks/endpoints", json=body, headers=ONE)
    again = await api.post("/api/webhooks/endpoints", json=body, headers=ONE)
    assert (again.json()["id"], again.json()["secret"]) == (first.json()["id"], None)
    assert first.json()["secret"] not in repr(herd.rows(herd.tables.claim))
    assert len(herd.rows(herd.tables.webhook_endpoint)) == 1


async def test_orders_about_orphans_are_given_once(api: httpx.AsyncClient, herd: Herd) -> None:
    stranger = rent_outside_gpuherd(herd.world, "somebody-elses")
    await herd.run_for(timedelta(minutes=2))
    for what, status in (("stop", 202), ("adopt", 201)):
        headers = {"Idempotency-Key": what}
        replies = [await api.post(f"/api/orphans/{stranger}/{what}", headers=headers) for _ in range(2)]
        assert [it.status_code for it in replies] == [status, status]
        assert replies[1].content == replies[0].content
        assert [replayed(it) for it in replies] == [False, True]


async def test_what_was_refused_leaves_its_word_free(api: httpx.AsyncClient) -> None:
    assert (await api.post("/api/keys", json={}, headers=ONE)).status_code == 400
    assert (await api.post("/api/keys", json={"scopes": ["read"]}, headers=ONE)).status_code == 201
    two = {"Idempotency-Key": "two"}
    assert (await api.post("/api/instances", json={}, headers=two)).status_code == 400
    assert (await api.post("/api/instances", json=GOOD, headers=two)).status_code == 201


async def test_what_breaks_leaves_its_word_free(
    api: httpx.AsyncClient, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(cloud_routes, "clear_expired", None)
        assert (await api.post("/api/cache/cleanup", headers=ONE)).status_code == 500
    assert (await api.post("/api/cache/cleanup", headers=ONE)).status_code == 200


async def test_while_the_first_is_being_answered_the_second_has_to_wait(
    api: httpx.AsyncClient, plane: Plane, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(services: Services) -> int:
        entered.set()
        await go_on.wait()
        return await clear_expired(services)

    monkeypatch.setattr(cloud_routes, "clear_expired", slow)
    first = asyncio.ensure_future(api.post("/api/cache/cleanup", headers=ONE))
    await entered.wait()
    second = await api.post("/api/cache/cleanup", headers=ONE)
    assert (second.status_code, second.json()["code"]) == (409, "IDEMPOTENCY_KEY_IN_USE")
    go_on.set()
    assert (await first).status_code == 200
    assert replayed(await api.post("/api/cache/cleanup", headers=ONE))


async def test_a_claim_whose_process_died_can_be_taken_again(
    api: httpx.AsyncClient, herd: Herd, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as dying:
        for name in ("finish", "release"):
            dying.setattr(type(herd.stores.claims), name, dies)
        assert (await api.post("/api/cache/cleanup", headers=ONE)).status_code == 500
    assert (await api.post("/api/cache/cleanup", headers=ONE)).status_code == 409
    await clock.sleep(121)
    assert (await api.post("/api/cache/cleanup", headers=ONE)).status_code == 200


@pytest.mark.parametrize("word", ["", "a b", "x" * 256, "\u00e9"])
async def test_a_word_that_is_none_is_400_everywhere(api: httpx.AsyncClient, running: str, word: str) -> None:
    headers = [(b"Idempotency-Key", word.encode("latin-1"))]
    for path in ("/api/instances", f"/api/instances/{running}/stop", "/api/sync"):
        body = GOOD if path == "/api/instances" else {}
        reply = await api.post(path, json=body, headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_IDEMPOTENCY_KEY")
    reply = await api.post("/api/sync", headers=[(b"Idempotency-Key", b"a"), (b"Idempotency-Key", b"b")])
    assert reply.status_code == 400


@pytest.mark.proves("F26")
async def test_twenty_races_of_twenty_are_twenty_instances(api: httpx.AsyncClient, herd: Herd) -> None:
    for n in range(20):
        headers = {"Idempotency-Key": f"race-{n}"}
        replies = await asyncio.gather(
            *(api.post("/api/instances", json=GOOD, headers=headers) for _ in range(20))
        )
        assert len({it.json()["id"] for it in replies}) == 1
        assert sum(not replayed(it) for it in replies) == 1
    assert len(herd.rows(herd.tables.instance)) == 20


def test_only_routes_of_instances_see_to_it_themselves() -> None:
    """Whatever else mutates, now or later, is answered once by the layer in front of it."""
    of_instances = {
        (method, path)
        for (method, path) in ROUTE_SCOPES
        if method != "GET" and (path == "/api/instances" or path.startswith("/api/instances/"))
    }
    # They make no operation that a claim could stand for.
    ends = {it for it in of_instances if it[1].endswith(("/lease", "/heartbeat"))}
    assert of_instances - ends == NATIVE_CLAIMS


async def test_what_there_is_not_is_said_before_the_key_is_looked_at(api: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "used"}
    assert (await api.post("/api/sync", headers=key)).status_code == 200
    assert (await api.put("/api/sync", headers=key)).status_code == 405
    assert (await api.delete("/api/sync", headers=key)).status_code == 405
    assert (await api.post("/api/nothing", headers=key)).status_code == 404
