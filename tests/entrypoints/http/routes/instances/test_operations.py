"""Start, stop and delete over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from gpuherd.domain.instance.instance import Instance
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd


@pytest.fixture
async def running(api: httpx.AsyncClient, herd: Herd) -> AsyncIterator[Instance]:
    made = (await api.post("/api/instances", json=GOOD)).json()
    yield await herd.settle(await herd.get(made["id"]))


async def test_restart_stop_start_and_delete_are_accepted_and_can_be_followed(
    api: httpx.AsyncClient, herd: Herd, running: Instance
) -> None:
    for method, path, ends in [
        ("POST", f"/api/instances/{running.id}/restart", "running"),
        ("POST", f"/api/instances/{running.id}/stop", "exited"),
        ("POST", f"/api/instances/{running.id}/start", "running"),
        ("DELETE", f"/api/instances/{running.id}", "deleted"),
    ]:
        reply = await api.request(method, path)
        assert reply.status_code == 202, reply.text
        body = reply.json()
        assert reply.headers["location"] == f"/api/operations/{body['operationId']}"
        await herd.settle(running)
        operation = (await api.get(reply.headers["location"])).json()
        assert (operation["status"], operation["instanceId"]) == ("succeeded", running.id)
        times = [it["at"] for it in operation["phases"]]
        assert times == sorted(times)
        assert (await api.get(f"/api/instances/{running.id}")).json()["status"] == ends


async def test_the_callers_correlation_id_goes_with_the_goal(api: httpx.AsyncClient, herd: Herd) -> None:
    made = (await api.post("/api/instances", json=GOOD, headers={"X-Correlation-ID": "order-1"})).json()
    assert (await herd.get(made["id"])).correlation_id == "order-1"
    instance = await herd.settle(await herd.get(made["id"]))
    for n, (method, path) in enumerate([("POST", "/stop"), ("POST", "/start"), ("DELETE", "")]):
        ids = {"X-Correlation-ID": f"order-{n + 2}"}
        assert (await api.request(method, f"/api/instances/{made['id']}{path}", headers=ids)).is_success
        assert (await herd.get(made["id"])).correlation_id == ids["X-Correlation-ID"]
        await herd.settle(instance)
    assert "order-" not in (await api.get(f"/api/instances/{made['id']}")).text


async def test_the_same_by_name(api: httpx.AsyncClient, herd: Herd, running: Instance) -> None:
    for verb in ("stop", "start", "delete"):
        reply = await api.post(f"/api/instances/{verb}", json={"instanceName": "job"})
        assert reply.status_code == 202, reply.text
        await herd.settle(running)
    gone = await api.post("/api/instances/stop", json={"instanceName": "job"})
    assert (gone.status_code, gone.json()["code"]) == (404, "INSTANCE_NOT_FOUND")


async def test_a_name_that_two_share_is_refused_with_both(api: httpx.AsyncClient, running: Instance) -> None:
    await api.post("/api/instances", json=GOOD)
    for verb in ("start", "stop", "delete"):
        reply = await api.post(f"/api/instances/{verb}", json={"instanceName": "job"})
        assert (reply.status_code, reply.json()["code"]) == (409, "AMBIGUOUS_NAME")
        assert len(reply.json()["details"]["candidates"]) == 2


@pytest.mark.proves("F20")
async def test_fifty_starts_at_once(api: httpx.AsyncClient, herd: Herd, running: Instance) -> None:
    await api.post(f"/api/instances/{running.id}/stop")
    await herd.settle(running)
    replies = await asyncio.gather(*(api.post(f"/api/instances/{running.id}/start") for _ in range(50)))
    assert sorted(it.status_code for it in replies) == [202] + [409] * 49
    operation = next(it.json()["operationId"] for it in replies if it.status_code == 202)
    named = {it.json()["details"]["operationId"] for it in replies if it.status_code == 409}
    assert named == {operation}


@pytest.mark.proves("F24")
async def test_wrong_states_and_unknown_things(api: httpx.AsyncClient, herd: Herd, running: Instance) -> None:
    wrong = await api.post(f"/api/instances/{running.id}/start")
    assert (wrong.status_code, wrong.json()["code"]) == (409, "INSTANCE_NOT_STARTABLE")
    for path in ("/api/instances/nobody/start", "/api/instances/nobody/stop"):
        assert (await api.post(path)).json()["code"] == "INSTANCE_NOT_FOUND"
    assert (await api.delete("/api/instances/nobody")).status_code == 404
    assert (await api.get("/api/operations/op_x")).json()["code"] == "OPERATION_NOT_FOUND"


BAD_STARTS = [
    ({"healthCheck": {"timeoutMs": 1}}, "INVALID_HEALTH_CHECK"),
    ({"healthCheckConfig": {"targetPort": 0}}, "INVALID_HEALTH_CHECK"),
    ({"healthCheck": "yes"}, "INVALID_HEALTH_CHECK"),
    ({"healthCheck": {}, "healthCheckConfig": {}}, "INVALID_HEALTH_CHECK"),
    ({"targetPort": "80"}, "INVALID_HEALTH_CHECK"),
    ({"webhookUrl": "http://10.0.0.1/"}, "INVALID_WEBHOOK_URL"),
    ({"webhookUrl": 7}, "INVALID_WEBHOOK_URL"),
    ({"instanceName": ""}, "INVALID_INSTANCE_NAME"),
    ({"force": True}, "UNKNOWN_FIELD"),
]


@pytest.mark.parametrize(("body", "code"), BAD_STARTS, ids=str)
async def test_a_start_that_makes_no_sense_changes_nothing(
    api: httpx.AsyncClient, herd: Herd, running: Instance, body: dict[str, object], code: str
) -> None:
    await api.post(f"/api/instances/{running.id}/stop")
    await herd.settle(running)
    reply = await api.post(f"/api/instances/{running.id}/start", json=body)
    assert reply.status_code == 400
    assert code in {it["code"] for it in reply.json()["errors"]}
    assert (await api.get(f"/api/instances/{running.id}")).json()["status"] == "exited"


async def test_a_start_by_name_needs_the_name(api: httpx.AsyncClient) -> None:
    for verb in ("start", "stop", "delete"):
        reply = await api.post(f"/api/instances/{verb}", json={})
        assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INSTANCE_NAME")


async def test_a_health_check_is_shown_with_its_findings(api: httpx.AsyncClient, herd: Herd) -> None:
    wish = {**GOOD, "healthCheck": {"targetPort": 8888, "path": "/lab"}}
    made = (await api.post("/api/instances", json=wish)).json()
    assert made["healthCheck"]["status"] == "pending"
    await herd.settle(await herd.get(made["id"]))
    shown = (await api.get(f"/api/instances/{made['id']}")).json()
    assert (shown["status"], shown["usable"]) == ("ready", True)
    assert shown["healthCheck"]["status"] == "passed"
    assert shown["healthCheck"]["config"]["path"] == "/lab"
    assert [it["status"] for it in shown["healthCheck"]["endpoints"]] == ["healthy"]


@pytest.mark.parametrize(
    "check",
    [{"timeoutMs": 50}, {"retryAttempts": 11}, {"maxWaitTimeMs": 1}, {"pfad": "/"}, {"path": "x"}, []],
)
async def test_a_health_check_that_makes_no_sense_is_refused(api: httpx.AsyncClient, check: object) -> None:
    reply = await api.post("/api/instances", json={**GOOD, "healthCheck": check})
    assert reply.status_code == 400
    assert {it["code"] for it in reply.json()["errors"]} <= {"INVALID_HEALTH_CHECK", "UNKNOWN_FIELD"}
