"""Leases, and the word that an instance is in use, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.contract.wire_models import iso
from gpuherd.domain.instance.idleness import AppAnswer
from gpuherd.domain.instance.instance import Instance
from gpuherd.simulator.simulated_bill import Use
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd

DAY_S = 86_400


@pytest.fixture
async def leased(api: httpx.AsyncClient, herd: Herd) -> AsyncIterator[Instance]:
    made = await api.post("/api/instances", json={**GOOD, "lease": {"seconds": 3600}})
    assert made.status_code == 201, made.text
    assert made.json()["lease"] == {"endsAt": None, "seconds": 3600, "then": "stop"}
    yield await herd.settle(await herd.get(made.json()["id"]))


async def test_the_end_of_a_lease_is_in_the_details(
    api: httpx.AsyncClient, herd: Herd, leased: Instance
) -> None:
    shown = (await api.get(f"/api/instances/{leased.id}")).json()
    assert leased.lease_term is not None
    assert shown["lease"] == {"endsAt": iso(leased.lease_term.ends_at), "seconds": 3600, "then": "stop"}
    assert (shown["autoStop"], shown["deleteAfterStoppedSeconds"]) == (None, None)


async def test_a_new_end_counts_from_now_and_tells_what_it_costs(
    api: httpx.AsyncClient, herd: Herd, leased: Instance
) -> None:
    reply = await api.post(f"/api/instances/{leased.id}/lease", json={"seconds": 7200, "then": "delete"})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert body["endsAt"] == iso(herd.clock.now() + timedelta(hours=2))
    assert body["then"] == "delete"
    assert leased.hourly_usd is not None
    assert float(body["costUntilEnd"]) == pytest.approx(2 * float(leased.hourly_usd))
    until = iso(herd.clock.now() + timedelta(days=1))
    moved = await api.post(f"/api/instances/{leased.name}/lease", json={"until": until})
    assert (moved.json()["endsAt"], moved.json()["then"]) == (until, "delete")
    gone = await api.delete(f"/api/instances/{leased.id}/lease")
    assert gone.json() == {"instanceId": leased.id, "endsAt": None, "then": None, "costUntilEnd": None}
    assert (await api.get(f"/api/instances/{leased.id}")).json()["lease"] is None


async def test_a_stopped_one_costs_its_disk_until_the_end(
    api: httpx.AsyncClient, herd: Herd, leased: Instance
) -> None:
    await herd.stop(leased.id)
    await herd.run_for(timedelta(minutes=5))
    reply = await api.post(f"/api/instances/{leased.id}/lease", json={"seconds": 7200})
    assert reply.json()["costUntilEnd"] == "0"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"seconds": 5},
        {"seconds": 60, "then": "sell"},
        {"seconds": 60, "until": "2030-01-01T00:00:00Z"},
        {"until": "tomorrow"},
    ],
)
async def test_a_new_end_that_makes_no_sense_has_the_code_that_a_create_gives(
    api: httpx.AsyncClient, leased: Instance, body: dict[str, Any]
) -> None:
    refused = await api.post(f"/api/instances/{leased.id}/lease", json=body)
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_LEASE")
    assert {it["code"] for it in refused.json()["errors"]} == {"INVALID_LEASE"}


async def test_a_rule_about_both_ends_is_told_as_a_plain_sentence(
    api: httpx.AsyncClient, leased: Instance
) -> None:
    refused = await api.post(f"/api/instances/{leased.id}/lease", json={})
    assert refused.json()["detail"] == "give seconds or until, one of the two"


async def test_after_the_end_it_is_refused(api: httpx.AsyncClient, herd: Herd, leased: Instance) -> None:
    sooner = await api.post(f"/api/instances/{leased.id}/lease", json={"seconds": 60})
    assert sooner.status_code == 200, sooner.text
    await herd.run_for(timedelta(minutes=2))
    late = await api.post(f"/api/instances/{leased.id}/lease", json={"seconds": 60})
    assert (late.status_code, late.json()["code"]) == (409, "LEASE_ENDED")
    assert (await api.delete(f"/api/instances/{leased.id}/lease")).status_code == 409


async def test_a_heartbeat_keeps_what_silence_would_end(api: httpx.AsyncClient, herd: Herd) -> None:
    made = await api.post("/api/instances", json={**GOOD, "autoStop": {"silenceSeconds": 60}})
    instance = await herd.settle(await herd.get(made.json()["id"]))
    await herd.run_for(timedelta(seconds=30))
    beat = await api.post(f"/api/instances/{instance.id}/heartbeat")
    assert (beat.status_code, beat.content) == (204, b"")
    shown = (await api.get(f"/api/instances/{instance.id}")).json()["autoStop"]
    assert shown == {
        "idleSeconds": None,
        "gpuBelow": None,
        "cpuBelow": None,
        "activity": None,
        "silenceSeconds": 60,
        "then": "stop",
        "lastUsedAt": iso(herd.clock.now()),
        "endsAt": iso(herd.clock.now() + timedelta(seconds=60)),
    }


async def test_idleness_is_agreed_shown_and_ends_it(api: httpx.AsyncClient, herd: Herd) -> None:
    rule = {"idleSeconds": 300, "gpuBelow": 7, "activity": {"port": 8888, "path": "/busy"}, "then": "delete"}
    made = await api.post("/api/instances", json={**GOOD, "autoStop": rule})
    instance = await herd.settle(await herd.get(made.json()["id"]))
    agreed = {"cpuBelow": 10, "silenceSeconds": None, "lastUsedAt": None, "endsAt": None}
    assert (await api.get(f"/api/instances/{instance.id}")).json()["autoStop"] == {**rule, **agreed}
    herd.applications.answer = AppAnswer(is_idle=True)
    herd.world.uses.set(instance.cloud_id or "", Use(herd.world.now(), 6.0, 0.0))
    while (shown := (await api.get(f"/api/instances/{instance.id}")).json()["autoStop"])["endsAt"] is None:
        await herd.run_for(timedelta(minutes=1))
    assert shown["endsAt"] > iso(herd.clock.now())
    await herd.run_for(timedelta(minutes=10))
    story = (await api.get(f"/api/instances/{instance.id}/attempts")).text
    assert "it was idle for 300 s" in story
    assert (await herd.get(instance.id)).goal == "deleted"


async def test_a_heartbeat_may_have_a_key_like_any_request(api: httpx.AsyncClient, leased: Instance) -> None:
    once = {"Idempotency-Key": "beat-1"}
    replies = [await api.post(f"/api/instances/{leased.id}/heartbeat", headers=once) for _ in range(2)]
    assert [(it.status_code, it.content) for it in replies] == [(204, b""), (204, b"")]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("lease", {}, "INVALID_LEASE"),
        ("lease", 3600, "INVALID_LEASE"),
        ("lease", {"seconds": 9}, "INVALID_LEASE"),
        ("lease", {"seconds": 90 * DAY_S + 1}, "INVALID_LEASE"),
        ("lease", {"seconds": True}, "INVALID_LEASE"),
        ("lease", {"seconds": 60, "until": "2030-01-01T00:00:00Z"}, "INVALID_LEASE"),
        ("lease", {"until": "tomorrow"}, "INVALID_LEASE"),
        ("lease", {"until": "2001-01-01T00:00:00Z"}, "INVALID_LEASE"),
        ("lease", {"seconds": 60, "then": "sell"}, "INVALID_LEASE"),
        ("lease", {"seconds": 60, "after": "stop"}, "UNKNOWN_FIELD"),
        ("autoStop", {}, "INVALID_AUTO_STOP"),
        ("autoStop", {"silenceSeconds": 9}, "INVALID_AUTO_STOP"),
        ("autoStop", {"idleSeconds": 299}, "INVALID_AUTO_STOP"),
        ("autoStop", {"idleSeconds": "300"}, "INVALID_AUTO_STOP"),
        ("autoStop", {"idleSeconds": 300, "gpuBelow": 0}, "INVALID_AUTO_STOP"),
        ("autoStop", {"idleSeconds": 300, "cpuBelow": 101}, "INVALID_AUTO_STOP"),
        ("autoStop", {"idleSeconds": 300, "activity": {"path": "/"}}, "INVALID_AUTO_STOP"),
        ("autoStop", {"idleSeconds": 300, "activity": {"port": 80, "path": "/../x"}}, "INVALID_AUTO_STOP"),
        ("autoStop", {"idleSeconds": 300, "activity": {"port": 80, "url": "x"}}, "UNKNOWN_FIELD"),
        ("autoStop", {"silenceSeconds": 300, "gpuBelow": 5}, "INVALID_AUTO_STOP"),
        ("deleteAfterStoppedSeconds", 9, "INVALID_DELETE_AFTER_STOPPED"),
        ("deleteAfterStoppedSeconds", "10", "INVALID_DELETE_AFTER_STOPPED"),
    ],
)
async def test_what_cannot_be_agreed_is_refused_with_a_code_and_nothing_is_rented(
    api: httpx.AsyncClient, herd: Herd, field: str, value: Any, code: str
) -> None:
    reply = await api.post("/api/instances", json={**GOOD, field: value})
    assert reply.status_code == 400, reply.text
    assert [it["code"] for it in reply.json()["errors"]] == [code], reply.text
    assert (await api.get("/api/instances")).json()["total"] == 0


async def test_a_key_may_be_bound_to_leases(api: httpx.AsyncClient) -> None:
    made = await api.post("/api/keys", json={"scopes": ["write"], "limits": {"maxLeaseSeconds": 600}})
    assert made.json()["limits"]["maxLeaseSeconds"] == 600, made.text
    as_key = {"Authorization": f"Bearer {made.json()['key']}"}
    rented = (await api.post("/api/instances", json=GOOD, headers=as_key)).json()
    assert rented["lease"] == {"endsAt": None, "seconds": 600, "then": "stop"}
    long = await api.post("/api/instances", json={**GOOD, "lease": {"seconds": 601}}, headers=as_key)
    assert (long.status_code, long.json()["code"]) == (400, "INVALID_LEASE")
    gone = await api.delete(f"/api/instances/{rented['id']}/lease", headers=as_key)
    assert (gone.status_code, gone.json()["code"]) == (400, "LEASE_REQUIRED")
