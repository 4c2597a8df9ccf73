"""Image, command, ports and variables over HTTP: what is shown of them, and what is refused at once."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

import httpx
import pytest

from gpuherd.adapters.sealer import AesGcmSealer
from gpuherd.domain.secret import Secret
from gpuherd.simulator.simulated_catalogue import TEAM_REGISTRY
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import SECRETS_KEY, Herd

CANARY = "canary-of-a-variable"
IMAGE = {
    **{key: value for key, value in GOOD.items() if key != "templateId"},
    "imageUrl": "docker.io/pytorch/pytorch:2.4.0",
    "command": "sleep infinity",
    "ports": ["8000/http"],
    "envs": {"HF_TOKEN": CANARY},
    "minCudaVersion": "12.4",
    "registryAuthId": TEAM_REGISTRY.id,
}


async def test_everything_but_the_values_is_shown(api: httpx.AsyncClient, herd: Herd) -> None:
    made = await api.post("/api/instances", json=IMAGE)
    assert made.status_code == 201, made.text
    await herd.run_for(timedelta(minutes=2))
    shown = await api.get(f"/api/instances/{made.json()['id']}")
    for reply in (made, shown):
        said = reply.json()
        assert said["envs"] == {"HF_TOKEN": "***"}
        assert {name: said[name] for name in IMAGE if name not in ("envs", "productName")} == {
            name: IMAGE[name] for name in IMAGE if name not in ("envs", "productName")
        }
        assert said["templateId"] == ""
        assert CANARY not in reply.text
    (machine,) = herd.world.alive()
    assert machine.request.image_auth_id == TEAM_REGISTRY.id
    assert dict(machine.request.envs)["HF_TOKEN"] == CANARY


async def test_a_credential_that_is_not_there_is_refused_before_anything_is_stored(
    api: httpx.AsyncClient, herd: Herd
) -> None:
    wish = {**IMAGE, "registryAuthId": "nobody"}
    refused = await api.post("/api/instances", json=wish)
    assert (refused.status_code, refused.json()["code"]) == (404, "REGISTRY_AUTH_NOT_FOUND")
    plan = await api.post("/api/plans", json=wish)
    assert [it["code"] for it in plan.json()["reasons"]] == ["REGISTRY_AUTH_NOT_FOUND"]
    assert not herd.rows(herd.tables.instance)


async def test_without_a_key_variables_are_refused_and_all_else_goes_on(
    api: httpx.AsyncClient, herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herd.sealer, "_keys", {})
    refused = await api.post("/api/instances", json=IMAGE, headers={"Idempotency-Key": "one"})
    assert (refused.status_code, refused.json()["code"]) == (409, "SECRETS_KEY_MISSING")
    assert "GPUHERD_SECRETS_KEY" in refused.json()["detail"]
    plan = await api.post("/api/plans", json=IMAGE)
    assert "SECRETS_KEY_MISSING" in [it["code"] for it in plan.json()["reasons"]]
    without = {key: value for key, value in IMAGE.items() if key != "envs"}
    assert (await api.post("/api/instances", json=without)).status_code == 201


class TestRepeats:
    """The fingerprint of a request is stored, and must not let anybody try guesses at a value."""

    async def test_a_repeat_is_the_same_and_another_value_is_another_request(
        self, api: httpx.AsyncClient, herd: Herd
    ) -> None:
        one = {"Idempotency-Key": "one"}
        first = await api.post("/api/instances", json=IMAGE, headers=one)
        again = await api.post("/api/instances", json=IMAGE, headers=one)
        assert again.json()["id"] == first.json()["id"]
        other = await api.post("/api/instances", json={**IMAGE, "envs": {"HF_TOKEN": "x"}}, headers=one)
        assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")

    async def test_no_plain_hash_of_a_value_is_stored(self, api: httpx.AsyncClient, herd: Herd) -> None:
        await api.post("/api/instances", json=IMAGE, headers={"Idempotency-Key": "one"})
        (row,) = herd.rows(herd.tables.claim)
        guess = json.dumps(["POST", "/api/instances", IMAGE], sort_keys=True, separators=(",", ":"))
        assert row.fingerprint != hashlib.sha256(guess.encode()).hexdigest()

    async def test_after_a_change_of_the_key_a_repeat_is_still_known(
        self, api: httpx.AsyncClient, herd: Herd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = {"Idempotency-Key": "one"}
        first = await api.post("/api/instances", json=IMAGE, headers=one)
        both = AesGcmSealer([Secret("another key" * 4), SECRETS_KEY])
        monkeypatch.setattr(herd.sealer, "_keys", both._keys)
        again = await api.post("/api/instances", json=IMAGE, headers=one)
        assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
