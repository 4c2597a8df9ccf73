"""`/api/keys`: made, shown, limited, expired and revoked."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.support.failing import Failing
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.keys import bearer, key_id_in, make_key


async def test_a_key_is_shown_once_and_never_stored(api: httpx.AsyncClient, herd: Herd) -> None:
    wanted = {"label": "ci", "scopes": ["write", "read"], "limits": {"maxGpus": 4, "maxHourlyUsd": "1.50"}}
    reply = await api.post("/api/keys", json=wanted)
    made = reply.json()
    assert (reply.status_code, reply.headers["location"]) == (201, f"/api/keys/{made['id']}")
    assert key_id_in(made["key"]) == made["id"]
    assert made["limits"] == {
        "requestsPerMinute": None,
        "maxGpus": 4,
        "maxHourlyUsd": "1.5",
        "maxLeaseSeconds": None,
    }
    shown = (await api.get(f"/api/keys/{made['id']}")).json()
    assert shown == {name: value for name, value in made.items() if name not in ("key", "webhookSecret")}
    assert (await api.get("/api/keys")).json() == {"keys": [shown], "total": 1}
    assert (shown["scopes"], shown["status"], shown["label"]) == (["read", "write"], "active", "ci")
    everything = repr([herd.rows(table) for table in (herd.tables.api_key, herd.tables.audit)])
    for secret in ("key", "webhookSecret"):
        assert made[secret] not in everything
    assert made["key"].rpartition("_")[2] not in everything


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_SCOPES"),
        ({"scopes": []}, "INVALID_SCOPES"),
        ({"scopes": "admin"}, "INVALID_SCOPES"),
        ({"scopes": ["root"]}, "INVALID_SCOPES"),
        ({"scopes": [["read"]]}, "INVALID_SCOPES"),
        ({"scopes": ["read"], "owner": "admin"}, "UNKNOWN_FIELD"),
        ({"scopes": ["read"], "id": "admin"}, "UNKNOWN_FIELD"),
        ({"scopes": ["read"], "expiresAt": "yesterday"}, "INVALID_EXPIRES_AT"),
        ({"scopes": ["read"], "expiresAt": "2001-01-01T00:00:00Z"}, "INVALID_EXPIRES_AT"),
        ({"scopes": ["read"], "expiresAt": 7}, "INVALID_EXPIRES_AT"),
        ({"scopes": ["read"], "limits": []}, "INVALID_LIMITS"),
        ({"scopes": ["read"], "limits": {"maxGPUs": 1}}, "UNKNOWN_FIELD"),
        ({"scopes": ["read"], "limits": {"maxGpus": -1}}, "INVALID_LIMITS"),
        ({"scopes": ["read"], "limits": {"maxGpus": True}}, "INVALID_LIMITS"),
        ({"scopes": ["read"], "limits": {"maxGpus": 1.5}}, "INVALID_LIMITS"),
        ({"scopes": ["read"], "limits": {"requestsPerMinute": 0}}, "INVALID_LIMITS"),
        ({"scopes": ["read"], "limits": {"maxHourlyUsd": "NaN"}}, "INVALID_LIMITS"),
        ({"scopes": ["read"], "limits": {"maxHourlyUsd": "much"}}, "INVALID_LIMITS"),
        ({"scopes": ["read"], "limits": {"maxHourlyUsd": -1}}, "INVALID_LIMITS"),
        ({"scopes": ["read"], "label": "a\nb"}, "INVALID_LABEL"),
        ({"scopes": ["read"], "label": "x" * 101}, "INVALID_LABEL"),
    ],
)
async def test_what_cannot_be_meant_is_refused(api: httpx.AsyncClient, body: Any, code: str) -> None:
    reply = await api.post("/api/keys", json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, code)
    assert (await api.get("/api/keys")).json()["total"] == 0


async def test_a_revoked_key_opens_nothing_from_that_moment(api: httpx.AsyncClient, plane: Plane) -> None:
    made = await make_key(plane, "read")
    assert (await api.get("/api/instances", headers=bearer(made))).status_code == 200
    reply = await api.delete(f"/api/keys/{made.key.id}")
    assert (reply.status_code, reply.json()["status"]) == (200, "revoked")
    assert (await api.get("/api/instances", headers=bearer(made))).status_code == 401
    again = await api.delete(f"/api/keys/{made.key.id}")
    assert again.json()["revokedAt"] == reply.json()["revokedAt"]


async def test_the_stored_digest_of_a_key_opens_nothing(api: httpx.AsyncClient, plane: Plane) -> None:
    made = await make_key(plane, "read")
    stolen = made.key.digest
    for secret in (stolen.encode(), bytes.fromhex(stolen), f"ghk_{made.key.id}_{stolen}".encode()):
        guess = {b"Authorization": b"Bearer " + secret}
        assert (await api.get("/api/instances", headers=guess)).status_code == 401
    assert (await api.get("/api/instances", headers=bearer(made))).status_code == 200


async def test_known_keys_stay_known_while_the_store_is_away(
    api: httpx.AsyncClient, plane: Plane, herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await make_key(plane, "read")
    monkeypatch.setattr(herd.stores.keys, "list_all", Failing(StoreUnavailable("away")).list_all)
    with pytest.raises(StoreUnavailable):
        await plane.services.key_cache.refresh()
    assert (await api.get("/api/instances", headers=bearer(made))).status_code == 200


async def test_an_expired_key_opens_nothing(api: httpx.AsyncClient, plane: Plane, clock: FakeClock) -> None:
    made = await make_key(plane, "read", expires_at=clock.now() + timedelta(hours=1))
    assert (await api.get("/api/instances", headers=bearer(made))).status_code == 200
    await clock.sleep(3600)
    assert (await api.get("/api/instances", headers=bearer(made))).status_code == 401
    assert (await api.get(f"/api/keys/{made.key.id}")).json()["status"] == "expired"


async def test_the_admin_key_of_the_settings_cannot_be_revoked(api: httpx.AsyncClient) -> None:
    reply = await api.delete("/api/keys/admin")
    assert (reply.status_code, reply.json()["code"]) == (409, "ADMIN_KEY_NOT_REVOCABLE")
    assert (await api.get("/api/keys/admin")).json()["code"] == "KEY_NOT_FOUND"
    assert (await api.delete("/api/keys/00000000")).json()["code"] == "KEY_NOT_FOUND"
    assert KEY not in reply.text


async def test_a_key_has_so_many_requests_a_minute(
    api: httpx.AsyncClient, plane: Plane, clock: FakeClock
) -> None:
    made = await make_key(plane, "read", requests_per_minute=5)
    other = await make_key(plane, "read", requests_per_minute=5)
    statuses = [(await api.get("/api/instances", headers=bearer(made))).status_code for _ in range(6)]
    assert statuses == [200] * 5 + [429]
    await plane.services.key_cache.refresh()
    refused = await api.get("/api/instances", headers=bearer(made))
    assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMIT_EXCEEDED")
    assert refused.headers["retry-after"] == "12"
    assert (await api.get("/api/instances", headers=bearer(other))).status_code == 200
    await clock.sleep(12)
    statuses = [(await api.get("/api/instances", headers=bearer(made))).status_code for _ in range(2)]
    assert statuses == [200, 429]


async def test_the_last_use_is_written_down_later(
    api: httpx.AsyncClient, plane: Plane, clock: FakeClock
) -> None:
    made = await make_key(plane, "read")
    path = f"/api/keys/{made.key.id}"
    await api.get("/api/instances", headers=bearer(made))
    assert (await api.get(path)).json()["lastUsedAt"] is None
    await plane.services.key_cache.flush_last_used()
    first = (await api.get(path)).json()["lastUsedAt"]
    assert first is not None
    await clock.sleep(5)
    await plane.services.key_cache.flush_last_used()
    assert (await api.get(path)).json()["lastUsedAt"] == first


async def test_gpus_are_limited_and_given_back_with_the_instance(
    api: httpx.AsyncClient, plane: Plane, herd: Herd
) -> None:
    made = await make_key(plane, max_gpus=3)
    first = await api.post("/api/instances", json={**GOOD, "gpuNum": 2}, headers=bearer(made))
    assert first.status_code == 201
    refused = await api.post("/api/instances", json={**GOOD, "gpuNum": 2}, headers=bearer(made))
    assert (refused.status_code, refused.json()["code"]) == (429, "QUOTA_EXCEEDED")
    assert refused.json()["details"]["gpus"] == {"used": 2, "requested": 2, "allowed": 3}
    assert (await api.post("/api/instances", json=GOOD, headers=bearer(made))).status_code == 201
    # Another key's instances do not count.
    assert (await api.post("/api/instances", json=GOOD)).status_code == 201
    await api.delete(f"/api/instances/{first.json()['id']}", headers=bearer(made))
    await herd.run_for(timedelta(minutes=2))
    again = await api.post("/api/instances", json={**GOOD, "gpuNum": 2}, headers=bearer(made))
    assert again.status_code == 201


async def test_dollars_are_limited_by_the_best_offer_or_by_what_was_said(
    api: httpx.AsyncClient, plane: Plane
) -> None:
    made = await make_key(plane, max_hourly_usd=Decimal(2))
    price = {"maxHourlyPrice": "1.5"}
    assert (await api.post("/api/instances", json={**GOOD, **price}, headers=bearer(made))).status_code == 201
    refused = await api.post("/api/instances", json={**GOOD, **price}, headers=bearer(made))
    assert (refused.status_code, refused.json()["code"]) == (429, "QUOTA_EXCEEDED")
    said = refused.json()["details"]["hourlyUsd"]
    assert said == {"used": "1.5", "requested": "1.5", "allowed": "2"}
    cheap = await api.post("/api/instances", json=GOOD, headers=bearer(made))
    assert cheap.status_code == 201


@pytest.mark.parametrize(("said", "rented_for"), [({}, None), ({"maxHourlyPrice": "0.18"}, "0.175")])
async def test_what_was_counted_is_all_that_it_may_cost(
    api: httpx.AsyncClient, plane: Plane, herd: Herd, said: dict[str, str], rented_for: str | None
) -> None:
    herd.world.faults.add(Fault(FaultKind.SOLD_OUT, count=1))
    headers = bearer(await make_key(plane, max_hourly_usd=Decimal("0.18")))
    wish = {**GOOD, "regions": ["AS-SGP-02"], **said}
    made = (await api.post("/api/instances", json=wish, headers=headers)).json()
    await herd.run_for(timedelta(minutes=3))
    # The best offer, at 0.17, is gone, and the next is dearer.
    found = (await api.get(f"/api/instances/{made['id']}", headers=headers)).json()
    assert found["hourlyPrice"] == rented_for
    assert (found["status"] == "failed") == (rented_for is None)


async def test_a_price_that_nobody_knows_is_refused_where_there_is_a_limit(
    api: httpx.AsyncClient, plane: Plane, herd: Herd
) -> None:
    herd.world.faults.add(Fault(FaultKind.OUTAGE))
    made = await make_key(plane, max_hourly_usd=Decimal(2))
    refused = await api.post("/api/instances", json=GOOD, headers=bearer(made))
    assert refused.status_code == 503
    said = await api.post("/api/instances", json={**GOOD, "maxHourlyPrice": "1"}, headers=bearer(made))
    assert said.status_code == 201


async def test_a_start_is_limited_like_a_create(api: httpx.AsyncClient, plane: Plane, herd: Herd) -> None:
    headers = bearer(await make_key(plane, max_gpus=1))
    first = (await api.post("/api/instances", json=GOOD, headers=headers)).json()["id"]
    await herd.run_for(timedelta(minutes=2))
    assert (await api.post(f"/api/instances/{first}/stop", headers=headers)).status_code == 202
    await herd.run_for(timedelta(minutes=2))
    assert (await api.get(f"/api/instances/{first}", headers=headers)).json()["status"] == "exited"
    second = await api.post("/api/instances", json=GOOD, headers=headers)
    assert second.status_code == 201
    refused = await api.post(f"/api/instances/{first}/start", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "QUOTA_EXCEEDED")
    await api.delete(f"/api/instances/{second.json()['id']}", headers=headers)
    await herd.run_for(timedelta(minutes=2))
    assert (await api.post(f"/api/instances/{first}/start", headers=headers)).status_code == 202


async def test_every_key_may_know_itself_and_whether_a_strict_budget_covers_it(
    api: httpx.AsyncClient,
) -> None:
    none = {"requestsPerMinute": None, "maxGpus": None, "maxHourlyUsd": None, "maxLeaseSeconds": None}
    admin = (await api.get("/api/keys/self")).json()
    assert admin == {"id": "admin", "scopes": ["admin"], "limits": none, "strictBudget": False}
    body = {"scopes": ["read"], "limits": {"maxLeaseSeconds": 600}}
    made = (await api.post("/api/keys", json=body)).json()
    reader = {"Authorization": f"Bearer {made['key']}"}
    strict = {"name": "b", "scope": {"key": made["id"]}, "amount": "5", "period": "day", "strict": True}
    for covered, change in ((False, {**strict, "strict": False}), (True, {**strict, "name": "c"})):
        assert (await api.post("/api/budgets", json=change)).status_code == 201
        own = (await api.get("/api/keys/self", headers=reader)).json()
        limits = {**none, "maxLeaseSeconds": 600}
        assert own == {"id": made["id"], "scopes": ["read"], "limits": limits, "strictBudget": covered}
