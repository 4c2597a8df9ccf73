"""`/api/secrets`: values go in, and only names come out, to those who may use them."""

from __future__ import annotations

import hashlib
import json

import httpx

from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key

CANARY = "canary-of-a-secret"


async def test_only_an_admin_shares_and_takes_away_what_is_shared(
    api: httpx.AsyncClient, plane: Plane
) -> None:
    ada = bearer(await make_key(plane))
    body = {"value": CANARY, "shared": True}
    refused = await api.put("/api/secrets/hf", json=body, headers=ada)
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    assert (await api.put("/api/secrets/hf", json=body)).json()["shared"] is True
    assert (await api.delete("/api/secrets/hf?shared=true", headers=ada)).status_code == 403
    assert (await api.delete("/api/secrets/hf", headers=ada)).status_code == 404
    assert (await api.get("/api/secrets/hf", headers=ada)).status_code == 200


async def test_what_another_key_has_is_answered_like_what_nobody_has(
    api: httpx.AsyncClient, plane: Plane
) -> None:
    ada, bob = bearer(await make_key(plane)), bearer(await make_key(plane))
    await api.put("/api/secrets/hf", json={"value": CANARY}, headers=ada)
    for headers in (bob, {}):
        assert (await api.get("/api/secrets", headers=headers)).json()["total"] == 0
        for method in ("GET", "DELETE"):
            assert (await api.request(method, "/api/secrets/hf", headers=headers)).status_code == 404
        wish = {**GOOD, "envs": {"A": {"secret": "hf"}}}
        refused = await api.post("/api/instances", json=wish, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (404, "SECRET_NOT_FOUND")


async def test_a_repeat_with_another_value_is_another_request_and_no_plain_hash_tells_it(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    body, one = {"value": CANARY}, {"Idempotency-Key": "one"}
    first = await api.put("/api/secrets/hf", json=body, headers=one)
    again = await api.put("/api/secrets/hf", json=body, headers=one)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert CANARY not in first.text
    other = await api.put("/api/secrets/hf", json={"value": "other"}, headers=one)
    assert other.status_code == 422
    (row,) = herd.rows(herd.tables.claim)
    guess = json.dumps(["PUT", "/api/secrets/hf", body], sort_keys=True, separators=(",", ":"))
    assert row.fingerprint != hashlib.sha256(guess.encode()).hexdigest()
