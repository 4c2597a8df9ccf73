"""The audit log over HTTP: every mutation is in it, with who, what and by which request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from gpuherd.domain.audit import AuditEntry, AuditRecord, first_broken_entry
from gpuherd.entrypoints.route_scopes import ROUTE_SCOPES
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.usecases.access.audit_requests import REPEATS_BURST
from gpuherd.usecases.events.manage_webhooks import create_endpoint
from tests.entrypoints.http.conftest import GOOD
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.keys import bearer, make_key
from tests.support.unmanaged_machines import rent_outside_gpuherd

WITH_HOOK = {**GOOD, "webhookUrl": "https://example.com/hook"}


async def entries(api: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get("/api/audit?order=asc&limit=100")).json()["entries"]
    return found


def entry(it: dict[str, Any]) -> AuditEntry:
    at = datetime.fromisoformat(it["at"]).astimezone(UTC)
    said = (it[name] for name in ("actor", "action", "target", "before", "after", "requestId"))
    return AuditEntry(it["n"], AuditRecord(at, *said), it["hash"])


class Setting:
    """A world in which every mutation can succeed."""

    def __init__(self, api: httpx.AsyncClient, herd: Herd, plane: Plane):
        self.api, self.herd, self.plane = api, herd, plane

    async def instance(self, *, exited: bool = False, name: str = "job") -> str:
        made = await self.api.post("/api/instances", json={**WITH_HOOK, "name": name})
        instance: str = made.json()["id"]
        await self.herd.run_for(timedelta(minutes=2))
        if exited:
            await self.api.post(f"/api/instances/{instance}/stop")
            await self.herd.run_for(timedelta(minutes=1))
        return instance

    async def stranger(self) -> str:
        found = rent_outside_gpuherd(self.herd.world, "somebody-elses")
        await self.herd.run_for(timedelta(minutes=2))
        return found

    async def endpoint(self) -> str:
        return (await create_endpoint(self.plane.services, "https://example.com/")).endpoint.id

    async def delivery(self) -> str:
        await self.instance()
        found: str = (await self.api.get("/api/webhooks/deliveries")).json()["deliveries"][0]["id"]
        return found

    async def failed_job(self) -> str:
        await self.api.post("/api/instances", json=GOOD)
        (job,) = self.herd.rows(self.herd.tables.job)
        await self.herd.book.mark_failed(job.id, "broken")
        return str(job.id)

    async def budget(self) -> str:
        found: str = (await self.api.post("/api/budgets", json=BUDGET)).json()["id"]
        return found

    async def volume(self) -> str:
        found: str = (await self.api.post("/api/volumes", json=VOLUME)).json()["id"]
        return found

    async def prewarm(self) -> str:
        found: str = (await self.api.post("/api/prewarms", json=PREWARM)).json()["id"]
        return found

    async def secret(self) -> str:
        await self.api.put("/api/secrets/hf", json={"value": "hidden"})
        return "hf"

    async def key(self) -> str:
        return (await make_key(self.plane)).key.id


PREWARM = {"imageUrl": "a:1", "region": "US-CA-06"}
VOLUME = {"name": "data", "region": "US-CA-06", "sizeGb": 10}
BUDGET = {"name": "all", "scope": {"all": True}, "amount": 100, "period": "month"}
# Of each mutating route: the action, what goes into its path, and its body.
CASES: dict[tuple[str, str], tuple[str, Any, dict[str, Any]]] = {
    ("POST", "/api/instances"): ("instance.create", None, GOOD),
    ("POST", "/api/instances/start"): (
        "instance.start",
        lambda it: it.instance(exited=True),
        {"instanceName": "job"},
    ),
    ("POST", "/api/instances/stop"): ("instance.stop", Setting.instance, {"instanceName": "job"}),
    ("POST", "/api/instances/delete"): ("instance.delete", Setting.instance, {"instanceName": "job"}),
    ("POST", "/api/instances/{id_or_name}/start"): (
        "instance.start",
        lambda it: it.instance(exited=True),
        {},
    ),
    ("POST", "/api/instances/{id_or_name}/restart"): ("instance.restart", Setting.instance, {}),
    ("POST", "/api/instances/{id_or_name}/replace"): ("instance.replace", Setting.instance, {}),
    ("POST", "/api/instances/{id_or_name}/stop"): ("instance.stop", Setting.instance, {}),
    ("POST", "/api/instances/{id_or_name}/lease"): ("instance.lease", Setting.instance, {"seconds": 60}),
    ("DELETE", "/api/instances/{id_or_name}/lease"): ("instance.lease", Setting.instance, {}),
    ("DELETE", "/api/instances/{id_or_name}"): ("instance.delete", Setting.instance, {}),
    ("POST", "/api/jobs/{job_id}/retry"): ("job.retry", Setting.failed_job, {}),
    ("POST", "/api/cache/clear"): ("cache.clear", None, {}),
    ("POST", "/api/cache/cleanup"): ("cache.cleanup", None, {}),
    ("POST", "/api/cloud/confirm-account"): ("cloud.confirm_account", None, {}),
    ("POST", "/api/cloud/confirm-loss"): ("cloud.confirm_loss", None, {}),
    ("POST", "/api/creates/resume"): ("creates.resume", None, {}),
    ("POST", "/api/sync"): ("cloud.sync", None, {}),
    ("POST", "/api/costs/reconcile"): ("costs.reconcile", None, {"day": "2026-01-01"}),
    ("POST", "/api/volumes"): ("volume.create", None, VOLUME),
    ("DELETE", "/api/volumes/{volume_id}"): ("volume.delete", Setting.volume, {}),
    ("POST", "/api/prewarms"): ("prewarm.create", None, PREWARM),
    ("DELETE", "/api/prewarms/{prewarm_id}"): ("prewarm.delete", Setting.prewarm, {}),
    ("POST", "/api/budgets"): ("budget.create", None, BUDGET),
    ("PATCH", "/api/budgets/{id_or_name}"): ("budget.change", Setting.budget, {"amount": 200}),
    ("DELETE", "/api/budgets/{id_or_name}"): ("budget.delete", Setting.budget, {}),
    ("POST", "/api/orphans/resume"): ("orphan.resume", None, {}),
    ("POST", "/api/orphans/{cloud_id}/adopt"): ("orphan.adopt", Setting.stranger, {}),
    ("POST", "/api/orphans/{cloud_id}/stop"): ("orphan.stop", Setting.stranger, {}),
    ("POST", "/api/orphans/{cloud_id}/delete"): ("orphan.delete", Setting.stranger, {}),
    ("POST", "/api/webhooks/endpoints"): ("webhook_endpoint.create", None, {"url": "https://example.com/"}),
    ("DELETE", "/api/webhooks/endpoints/{endpoint_id}"): ("webhook_endpoint.remove", Setting.endpoint, {}),
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/rotate"): (
        "webhook_endpoint.rotate",
        Setting.endpoint,
        {},
    ),
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/enable"): (
        "webhook_endpoint.enable",
        Setting.endpoint,
        {},
    ),
    ("POST", "/api/webhooks/deliveries/{delivery_id}/replay"): ("delivery.replay", Setting.delivery, {}),
    ("POST", "/api/webhooks/replay"): ("delivery.replay_all", None, {"since": "2020-01-01T00:00:00Z"}),
    ("POST", "/api/webhooks/test"): ("webhook.test", None, {"url": "https://example.com/?token=hidden"}),
    ("PUT", "/api/secrets/{name}"): ("secret.set", Setting.secret, {"value": "hidden"}),
    ("DELETE", "/api/secrets/{name}"): ("secret.remove", Setting.secret, {}),
    ("POST", "/api/secrets/rotate"): ("secret.rotate", None, {}),
    ("POST", "/api/keys"): ("key.create", None, {"scopes": ["read"]}),
    ("DELETE", "/api/keys/{key_id}"): ("key.revoke", Setting.key, {}),
    ("POST", "/api/keys/{key_id}/webhook-secret/rotate"): ("key.rotate_webhook_secret", Setting.key, {}),
}


def test_every_mutating_route_has_a_case() -> None:
    # A plan is a question, however long; nothing is done. A heartbeat comes every few seconds, and only says
    # that somebody is there.
    unrecorded = {("POST", "/api/plans"), ("POST", "/api/instances/{id_or_name}/heartbeat")}
    assert {*CASES, *unrecorded} == {it for it in ROUTE_SCOPES if it[0] != "GET"}


@pytest.mark.parametrize(("method", "path"), sorted(CASES))
async def test_each_mutation_is_one_entry(
    api: httpx.AsyncClient, herd: Herd, plane: Plane, method: str, path: str
) -> None:
    action, prepare, body = CASES[method, path]
    await herd.flags.put("collector_braked", "to have something to release")
    word = "" if prepare is None else await prepare(Setting(api, herd, plane))
    before = await entries(api)
    filled = "/".join(word if part.startswith("{") else part for part in path.split("/"))
    reply = await api.request(method, filled, json=body, headers={"X-Request-ID": "the-very-one"})
    assert reply.status_code in (200, 201, 202), reply.text
    (fresh,) = (await entries(api))[len(before) :]
    assert (fresh["action"], fresh["actor"], fresh["requestId"]) == (action, "admin", "the-very-one")
    if "{" in path:
        assert fresh["target"] == word
    assert "hidden" not in str(fresh)
    assert first_broken_entry(map(entry, await entries(api))) is None


@pytest.mark.parametrize(("method", "path"), sorted(it for it in CASES if "{" in it[1] and it[0] != "PUT"))
async def test_what_was_refused_is_not_in_it(api: httpx.AsyncClient, method: str, path: str) -> None:
    filled = "/".join("nothing" if part.startswith("{") else part for part in path.split("/"))
    body = CASES[method, path][2]
    assert (await api.request(method, filled, json=body)).status_code == 404
    assert await entries(api) == []


async def test_the_actor_is_the_key_and_events_say_so_too(api: httpx.AsyncClient, plane: Plane) -> None:
    made = await make_key(plane)
    instance = (await api.post("/api/instances", json=GOOD, headers=bearer(made))).json()["id"]
    assert [it["actor"] for it in await entries(api)] == ["admin", made.key.id]
    events = (await api.get(f"/api/instances/{instance}/events")).json()["events"]
    assert events[0]["actor"] == made.key.id


async def test_a_replay_is_no_second_deed(api: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "one"}
    for path, body in (("/api/instances", GOOD), ("/api/keys", {"scopes": ["read"]})):
        for _ in range(3):
            await api.post(path, json=body, headers={"Idempotency-Key": f"{headers}{path}".replace(" ", "")})
    assert [it["action"] for it in await entries(api)] == ["instance.create", "key.create"]


async def test_pages_go_both_ways(api: httpx.AsyncClient) -> None:
    for _ in range(5):
        await api.post("/api/cache/cleanup")
    first = (await api.get("/api/audit?limit=2")).json()
    assert ([it["n"] for it in first["entries"]], first["total"]) == ([5, 4], 5)
    rest = (await api.get(f"/api/audit?limit=3&cursor={first['nextCursor']}")).json()
    assert ([it["n"] for it in rest["entries"]], rest["nextCursor"]) == ([3, 2, 1], None)
    oldest = (await api.get("/api/audit?limit=2&order=asc")).json()
    more = (await api.get(f"/api/audit?limit=2&order=asc&cursor={oldest['nextCursor']}")).json()
    assert [it["n"] for it in oldest["entries"] + more["entries"]] == [1, 2, 3, 4]
    for bad in ("cursor=x", "cursor=-1", "order=up", "limit=0", "since=1", f"cursor={'9' * 30}"):
        assert (await api.get(f"/api/audit?{bad}")).status_code == 400, bad


async def test_a_key_that_repeats_one_action_too_often_is_refused_and_the_log_stays_short(
    api: httpx.AsyncClient, plane: Plane, clock: FakeClock
) -> None:
    ada, other = bearer(await make_key(plane)), bearer(await make_key(plane))
    test = {"url": "https://example.com/hook"}

    async def send(headers: dict[str, str]) -> httpx.Response:
        return await api.post("/api/webhooks/test", json=test, headers=headers)

    async def logged() -> int:
        page = await plane.services.stores.audit.page(1000)
        return sum(it.audit_record.action == "webhook.test" for it in page.entries)

    assert {(await send(ada)).status_code for _ in range(REPEATS_BURST)} == {200}
    refused = await send(ada)
    assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_REPEATS")
    assert await logged() == REPEATS_BURST
    # Neither other keys nor other actions of this one are held up, nor the admin.
    assert (await send(other)).status_code == 200
    assert (await api.post("/api/sync", headers=ada)).status_code == 200
    assert (await send({})).status_code == 200
    await clock.sleep(int(refused.headers["retry-after"]))
    assert [(await send(ada)).status_code for _ in range(2)] == [200, 429]
    assert await logged() == REPEATS_BURST + 3
