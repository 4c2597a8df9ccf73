"""`/api/webhooks` through the whole stack."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.ports.webhook_port import DeliveryResult
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd
from tests.support.webhooks.receivers import BROKEN, MISSING, OK, Hooks

URL = "https://example.com/hook?token=canary"
SHOWN = "https://example.com/hook?***"
BASE = "/api/webhooks"


@pytest.fixture
def hooks(herd: Herd) -> Hooks:
    it = Hooks(herd.clock)
    herd.receiver.instead = it
    return it


async def add(api: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    reply = await api.post(f"{BASE}/endpoints", json={"url": URL, **body})
    assert reply.status_code == 201, reply.text
    made: dict[str, Any] = reply.json()
    return made


async def listed(api: httpx.AsyncClient, **params: str) -> list[dict[str, Any]]:
    reply = await api.get(f"{BASE}/deliveries", params=params)
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["deliveries"]
    return found


async def rent(api: httpx.AsyncClient, herd: Herd, **more: str) -> str:
    made = (await api.post("/api/instances", json={**GOOD, **more})).json()
    await herd.run_for(timedelta(minutes=2))
    return str(made["id"])


async def test_the_secret_of_an_endpoint_is_shown_once(api: httpx.AsyncClient) -> None:
    reply = await api.post(f"{BASE}/endpoints", json={"url": URL, "label": "billing"})
    made = reply.json()
    assert made["secret"].startswith("whsec_")
    assert reply.headers["location"] == f"{BASE}/endpoints/{made['id']}"
    assert reply.headers["cache-control"] == "no-store"
    one = (await api.get(f"{BASE}/endpoints/{made['id']}")).json()
    assert (one["url"], one["label"], one["events"], one["enabled"]) == (SHOWN, "billing", None, True)
    everyone = (await api.get(f"{BASE}/endpoints")).json()
    assert everyone == {"endpoints": [one], "total": 1}
    assert "secret" not in one and "canary" not in json.dumps(everyone)


async def test_a_rotation_shows_the_new_secret_and_until_when_the_old_one_signs(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    made = await add(api)
    rotated = (await api.post(f"{BASE}/endpoints/{made['id']}/rotate")).json()
    assert rotated["secret"] != made["secret"]
    assert (rotated["secretGeneration"], rotated["rotatedAt"][:10]) == (2, "2026-01-01")
    assert rotated["previousSecretSignsUntil"][:10] == "2026-01-02"


async def test_an_endpoint_that_is_removed_is_gone(api: httpx.AsyncClient) -> None:
    path = f"{BASE}/endpoints/{(await add(api))['id']}"
    assert (await api.delete(path)).json()["removed"] is True
    for reply in (
        await api.delete(path),
        await api.get(path),
        await api.post(f"{path}/rotate"),
        await api.post(f"{path}/enable"),
    ):
        assert (reply.status_code, reply.json()["code"]) == (404, "WEBHOOK_ENDPOINT_NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_WEBHOOK_URL"),
        ({"url": "http://127.0.0.1/"}, "INVALID_WEBHOOK_URL"),
        ({"url": "ftp://example.com/"}, "INVALID_WEBHOOK_URL"),
        ({"url": 7}, "INVALID_WEBHOOK_URL"),
        ({"url": URL, "events": []}, "INVALID_EVENTS"),
        ({"url": URL, "events": ["instance.odd"]}, "INVALID_EVENTS"),
        ({"url": URL, "events": "instance.ready"}, "INVALID_EVENTS"),
        ({"url": URL, "label": "a\nb"}, "INVALID_LABEL"),
        ({"url": URL, "label": "x" * 101}, "INVALID_LABEL"),
        ({"url": URL, "secret": "whsec_mine"}, "UNKNOWN_FIELD"),
        ({"url": 1, "label": 2}, "VALIDATION_ERROR"),
    ],
)
async def test_an_endpoint_that_makes_no_sense_is_refused(
    api: httpx.AsyncClient, body: dict[str, Any], code: str
) -> None:
    reply = await api.post(f"{BASE}/endpoints", json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, code)
    assert (await api.get(f"{BASE}/endpoints")).json()["total"] == 0


async def test_deliveries_are_listed_with_their_tries_and_without_queries(
    api: httpx.AsyncClient, herd: Herd, hooks: Hooks
) -> None:
    hooks.answer = lambda _url, _body: BROKEN if len(hooks.visits) < 1 else OK
    endpoint = await add(api, events=["instance.created"])
    instance_id = await rent(api, herd, webhookUrl=URL)
    found = await listed(api)
    assert len(found) == 5
    (mine,) = await listed(api, endpointId=endpoint["id"])
    assert (mine["type"], mine["instanceId"], mine["url"]) == ("instance.created", instance_id, SHOWN)
    assert len(await listed(api, instanceId=instance_id, type="instance.ready")) == 1
    assert len(await listed(api, state="delivered", limit="2")) == 2
    retried = next(it for it in found if it["tries"] == 2)
    whole = (await api.get(f"{BASE}/deliveries/{retried['id']}")).json()
    assert [(it["outcome"], it["status"]) for it in whole["log"]] == [("http_5xx", 500), ("ok", 200)]
    assert whole["payload"]["data"]["webhookUrl"] == SHOWN
    assert "canary" not in json.dumps([found, whole])


@pytest.mark.parametrize(
    "params", [{"state": "odd"}, {"limit": "0"}, {"limit": "101"}, {"instance": "x"}, {"type": ""}]
)
async def test_a_filter_that_makes_no_sense_is_refused(
    api: httpx.AsyncClient, params: dict[str, str]
) -> None:
    reply = await api.get(f"{BASE}/deliveries", params=params)
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_PARAMETER")


async def test_a_replay_has_the_same_id_and_bytes_and_a_new_time(
    api: httpx.AsyncClient, herd: Herd, hooks: Hooks
) -> None:
    await rent(api, herd, webhookUrl=URL)
    first = hooks.visits[0]
    await herd.run_jobs_for(timedelta(hours=1))
    reply = await api.post(f"{BASE}/deliveries/{first.event_id}/replay")
    assert (reply.status_code, reply.json()["state"], reply.json()["replays"]) == (202, "pending", 1)
    await herd.run_jobs_for(timedelta(seconds=5))
    again = hooks.visits[-1]
    assert (again.event_id, again.body) == (first.event_id, first.body)
    assert again.at - first.at > timedelta(hours=1)
    assert (await api.get(f"{BASE}/deliveries/{first.event_id}")).json()["state"] == "delivered"
    unknown = await api.post(f"{BASE}/deliveries/msg_x/replay")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "DELIVERY_NOT_FOUND")


async def test_everything_that_failed_since_a_moment_is_replayed(
    api: httpx.AsyncClient, herd: Herd, hooks: Hooks
) -> None:
    hooks.answer = lambda _url, _body: MISSING
    await rent(api, herd, webhookUrl=URL)
    await herd.run_jobs_for(timedelta(days=5))
    endpoint = await add(api)
    since = herd.clock.now().isoformat()
    await rent(api, herd)
    hooks.answer = lambda _url, _body: OK
    assert len(await listed(api, state="dead")) == 4
    body: dict[str, Any] = {"since": since, "state": "dead"}
    assert (await api.post(f"{BASE}/replay", json=body)).json() == {"count": 0}
    body = {"since": since, "endpointId": endpoint["id"]}
    assert (await api.post(f"{BASE}/replay", json=body)).json() == {"count": 4}
    reply = await api.post(f"{BASE}/replay", json={"since": "2026-01-01T00:00:00Z", "state": "dead"})
    assert (reply.status_code, reply.json()) == (202, {"count": 4})
    await herd.run_jobs_for(timedelta(minutes=10))
    assert await listed(api, state="failed") == []
    assert [it.sequence for it in hooks.arrived[-4:]] == sorted(it.sequence for it in hooks.arrived[-4:])
    body = {"since": since, "endpointId": "ep_x"}
    assert (await api.post(f"{BASE}/replay", json=body)).status_code == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_SINCE"),
        ({"since": "yesterday"}, "INVALID_SINCE"),
        ({"since": 5}, "INVALID_SINCE"),
        ({"since": "2026-01-01", "state": "delivered"}, "INVALID_STATE"),
        ({"since": "2026-01-01", "all": True}, "UNKNOWN_FIELD"),
    ],
)
async def test_a_replay_that_makes_no_sense_is_refused(
    api: httpx.AsyncClient, body: dict[str, Any], code: str
) -> None:
    reply = await api.post(f"{BASE}/replay", json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, code)


async def test_a_test_event_goes_out_at_once_and_its_result_comes_back(
    api: httpx.AsyncClient, hooks: Hooks
) -> None:
    endpoint = await add(api)
    by_url = (await api.post(f"{BASE}/test", json={"url": URL})).json()
    assert (by_url["accepted"], by_url["status"], by_url["outcome"]) == (True, 200, "ok")
    assert (by_url["url"], by_url["error"]) == (SHOWN, None)
    assert hooks.visits[0].event["type"] == "webhook.test"
    assert hooks.visits[0].secrets is None
    refused = DeliveryResult(False, None, "tls", "the TLS handshake failed", None, 0.25)
    hooks.answer = lambda _url, _body: refused
    by_id = (await api.post(f"{BASE}/test", json={"endpointId": endpoint["id"]})).json()
    assert (by_id["accepted"], by_id["status"], by_id["outcome"]) == (False, None, "tls")
    assert by_id["error"] == "the TLS handshake failed"
    (secret,) = hooks.visits[1].secrets or ()
    assert secret.reveal() == endpoint["secret"]
    assert await listed(api) == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "INVALID_WEBHOOK_URL"),
        ({"url": URL, "endpointId": "ep_1"}, 400, "INVALID_WEBHOOK_URL"),
        ({"url": "http://169.254.169.254/"}, 400, "INVALID_WEBHOOK_URL"),
        ({"endpointId": "ep_x"}, 404, "WEBHOOK_ENDPOINT_NOT_FOUND"),
        ({"endpointId": ""}, 400, "INVALID_ENDPOINT_ID"),
    ],
)
async def test_a_test_of_nothing_is_refused(
    api: httpx.AsyncClient, hooks: Hooks, body: dict[str, Any], status: int, code: str
) -> None:
    reply = await api.post(f"{BASE}/test", json=body)
    assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert hooks.visits == []


async def test_nobody_without_a_key_comes_near(anonymous: httpx.AsyncClient) -> None:
    for path in ("endpoints", "deliveries"):
        assert (await anonymous.get(f"{BASE}/{path}", headers={"Authorization": ""})).status_code == 401
