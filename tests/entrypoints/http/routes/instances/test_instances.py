"""Reading instances and jobs, keys, ids in headers, and health."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from gpuherd.usecases.service.read_service_health import ANSWER_TTL_S
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.support.herd import Herd

OPEN = {"/livez", "/readyz", "/health", "/openapi.json", "/docs"}


async def test_every_route_but_the_open_ones_needs_a_key(anonymous: httpx.AsyncClient) -> None:
    document = (await anonymous.get("/openapi.json")).json()
    asked = 0
    for path, methods in document["paths"].items():
        for method in methods:
            reply = await anonymous.request(method, path.replace("{", "").replace("}", ""))
            if path in OPEN:
                assert reply.status_code == 200, path
            else:
                asked += 1
                assert (reply.status_code, reply.json()["code"]) == (401, "UNAUTHORIZED"), path
                assert reply.headers["www-authenticate"] == "Bearer"
    assert asked >= 7


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer wrong")],
        [(b"authorization", f"Basic {KEY}".encode())],
        [(b"authorization", KEY.encode())],
        [(b"authorization", f"Bearer {KEY[:-1]}".encode())],
        [(b"authorization", f"Bearer {KEY}x".encode())],
        [(b"authorization", b"Bearer \xff\x00")],
        [(b"authorization", f"Bearer {KEY}".encode()), (b"authorization", b"Bearer x")],
    ],
    ids=str,
)
async def test_a_wrong_key_is_refused_however_it_is_wrong(
    anonymous: httpx.AsyncClient, headers: list[tuple[bytes, bytes]]
) -> None:
    reply = await anonymous.get(f"/api/instances?key={KEY}", headers=headers)
    assert reply.status_code == 401
    assert KEY not in reply.text


async def test_an_instance_is_found_by_id_and_by_name(api: httpx.AsyncClient) -> None:
    made = (await api.post("/api/instances", json=GOOD)).json()
    assert (await api.get("/api/instances/job")).json()["id"] == made["id"]
    await api.post("/api/instances", json=GOOD)
    several = await api.get("/api/instances/job")
    assert (several.status_code, several.json()["code"]) == (409, "AMBIGUOUS_NAME")
    assert len(several.json()["details"]["candidates"]) == 2
    unknown = await api.get("/api/instances/nobody")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "INSTANCE_NOT_FOUND")


@pytest.mark.parametrize(
    "word", ["..%2f..%2fetc", "%00", "inst_%27--", "x" * 3000, "inst_" + "z" * 26, "%F0%9F%92%A5"]
)
async def test_strange_ids_are_simply_not_found(api: httpx.AsyncClient, word: str) -> None:
    reply = await api.get(f"/api/instances/{word}")
    assert reply.status_code == 404
    assert reply.headers["content-type"] == "application/problem+json"


async def test_a_list_can_be_filtered_and_paged(api: httpx.AsyncClient) -> None:
    for n in range(5):
        await api.post("/api/instances", json={**GOOD, "name": f"job-{n}", "labels": {"odd": str(n % 2)}})
    page = (await api.get("/api/instances", params={"limit": 2})).json()
    assert [it["name"] for it in page["instances"]] == ["job-4", "job-3"]
    assert page["total"] == 5
    names = []
    cursor = None
    while True:
        params = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await api.get("/api/instances", params=params)).json()
        names += [it["name"] for it in page["instances"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert names == [f"job-{n}" for n in reversed(range(5))]
    odd = (await api.get("/api/instances", params={"label": "odd=1"})).json()
    assert [it["name"] for it in odd["instances"]] == ["job-3", "job-1"]
    assert (await api.get("/api/instances", params={"status": "failed"})).json()["total"] == 0
    assert (await api.get("/api/instances", params={"name": "job-2"})).json()["total"] == 1


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "limit=-1",
        "limit=1e2",
        "limit=%D9%A1",
        "status=done",
        "label=x",
        "name=",
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(api: httpx.AsyncClient, query: str) -> None:
    reply = await api.get(f"/api/instances?{query}")
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_PARAMETER")


async def test_events_attempts_and_jobs_tell_the_whole_story(api: httpx.AsyncClient, herd: Herd) -> None:
    made = await api.post("/api/instances", json=GOOD)
    instance = await herd.get(made.json()["id"])
    await herd.settle(instance)
    events = (await api.get(f"/api/instances/{instance.id}/events")).json()["events"]
    assert [it["sequence"] for it in events] == list(range(1, len(events) + 1))
    assert [it["type"] for it in events][-1] == "instance.ready"
    (attempt,) = (await api.get(f"/api/instances/{instance.id}/attempts")).json()["attempts"]
    assert (attempt["state"], attempt["region"]) == ("bound", "CN-HK-01")
    jobs = (await api.get("/api/jobs", params={"instanceId": instance.id})).json()["jobs"]
    assert {it["status"] for it in jobs} == {"COMPLETED"}
    assert all(it["createdAt"] <= it["processedAt"] <= it["completedAt"] for it in jobs)
    one = (await api.get(f"/api/jobs/{jobs[0]['id']}")).json()
    assert one == jobs[0]
    stats = (await api.get("/api/jobs/stats")).json()
    assert (stats["completed"], stats["pending"], stats["total"]) == (2, 0, 2)
    assert stats["byType"] == {"create_instance": 1, "monitor_instance": 1}
    shown = (await api.get(f"/api/instances/{instance.id}")).json()
    assert shown["usable"] is True
    assert shown["hourlyPrice"] == "0.2"
    assert shown["connectionDetails"]["ssh"].startswith("ssh ")
    assert shown["readyAt"] is not None


async def test_an_unknown_job_or_job_filter_is_refused(api: httpx.AsyncClient) -> None:
    assert (await api.get("/api/jobs/job_x")).json()["code"] == "JOB_NOT_FOUND"
    assert (await api.get("/api/jobs?status=LOST")).status_code == 400


async def test_sane_ids_are_kept_and_strange_ones_replaced(api: httpx.AsyncClient) -> None:
    sane = await api.get("/livez", headers={"X-Request-ID": "abc-1", "X-Correlation-ID": "c.2"})
    assert (sane.headers["x-request-id"], sane.headers["x-correlation-id"]) == ("abc-1", "c.2")
    for strange in ("a b", "x" * 65, "a\tb", "<script>"):
        reply = await api.get("/livez", headers={"X-Request-ID": strange})
        assert reply.headers["x-request-id"].startswith("req_")


async def test_unknown_paths_and_methods_answer_with_problems(api: httpx.AsyncClient) -> None:
    for method, path, status in [
        ("GET", "/nope", 404),
        ("DELETE", "/api/jobs", 405),
        ("GET", "/api/instances/", 404),
    ]:
        reply = await api.request(method, path)
        assert reply.status_code == status
        assert reply.headers["content-type"] == "application/problem+json"


async def test_a_defect_is_answered_without_its_traceback(api: httpx.AsyncClient, herd: Herd) -> None:
    herd.database.read = None  # type: ignore[assignment]
    reply = await api.get("/api/jobs")
    assert (reply.status_code, reply.json()["code"]) == (500, "INTERNAL_ERROR")
    assert "Traceback" not in reply.text
    assert "NoneType" not in reply.text


async def test_health_tells_what_is_wrong_without_a_key(anonymous: httpx.AsyncClient, herd: Herd) -> None:
    await herd.run_for(timedelta(seconds=3))
    health = (await anonymous.get("/health")).json()
    assert health["status"] == "healthy"
    assert health["dependencies"]["novita"] == {
        "status": "up",
        "breaker": "CLOSED",
        "trouble": None,
        "lastListedAt": health["dependencies"]["novita"]["lastListedAt"],
        "lastBelievedAt": health["dependencies"]["novita"]["lastListedAt"],
        "unbelieved": None,
    }


async def test_blocked_creates_are_shown_and_can_be_resumed(api: httpx.AsyncClient, herd: Herd) -> None:
    await herd.run_for(timedelta(seconds=3))
    await herd.flags.put("creates_blocked", "the tag was lost")
    assert (await api.get("/health")).json()["status"] == "degraded"
    assert (await api.get("/api/creates")).json() == {"blocked": "the tag was lost"}
    await api.post("/api/creates/resume")
    assert (await api.get("/api/creates")).json() == {"blocked": None}
    await herd.clock.sleep(ANSWER_TTL_S)
    assert (await api.get("/health")).json()["status"] == "healthy"
