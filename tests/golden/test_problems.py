"""Every kind of problem body: its status, its code, and whatever else it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
from starlette.types import ASGIApp

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.golden.recorded_api import ADMIN, NOBODY, Caller, RecordedApi
from tests.golden.recording import Recording, header_lines
from tests.support.herd import Herd

BAD = {
    "name": " ",
    "productName": 1,
    "templateId": 0,
    "gpuNum": 9,
    "rootfsSize": 1,
    "region": "",
    "regions": [],
    "webhookUrl": "http://localhost/",
    "billingMode": "barter",
    "maxHourlyPrice": "-1",
    "labels": {"ö": "\n"},
    "optimize": "luck",
    "onFailure": "cry",
    "waitForCapacity": {"seconds": 0, "odd": 1},
    "healthCheck": {"path": "x", "maxWaitTimeMs": 1, "odd": 1},
    "odd": 1,
}


async def test_problems_of_bodies(api: RecordedApi) -> None:
    path = "/api/instances"
    await api("every field is wrong", "POST", path, BAD)
    await api("nothing is said", "POST", path, {})
    await api("no body", "POST", path)
    await api("no JSON", "POST", path, "{name: 1}")
    await api("no object", "POST", path, "[]")
    await api("no number", "POST", path, '{"gpuNum": NaN}')
    await api("a field twice", "POST", path, '{"name": "a", "name": "b"}')
    await api("no UTF-8", "POST", path, b'{"name": "\xff"}')
    await api("half a character", "POST", path, '{"name": "\\ud800"}')
    await api("too deep", "POST", path, "[" * 30)
    await api("compressed", "POST", path, GOOD, headers={"Content-Encoding": "gzip"})
    await api("too many fields", "POST", path, {f"field{n}": n for n in range(201)})
    await api("too large", "POST", path, "x" * (1024 * 1024 + 1))
    await api("our mark in a name", "POST", path, {**GOOD, "name": "a--gh1-b"})
    await api("a product that nobody sells", "POST", path, {**GOOD, "productName": "Abacus"})
    await api("a template that is not there", "POST", path, {**GOOD, "templateId": "9"})
    await api("a region that is not there", "POST", path, {**GOOD, "region": "MOON-01"})
    await api("two ways to say where", "POST", path, {**GOOD, "region": "CN-HK-01", "regions": ["US-01"]})
    await api("a bad word for once", "POST", path, GOOD, headers={"Idempotency-Key": "x" * 256})
    api.recording.compare()


async def test_problems_of_access(api: RecordedApi) -> None:
    await api("no key", "GET", "/api/instances", caller=NOBODY)
    await api("a key that nobody knows", "GET", "/api/instances", caller=Caller("stranger", "ghk_odd"))
    basic = {"Authorization": "Basic YTpi"}
    await api("another scheme", "GET", "/api/instances", caller=NOBODY, headers=basic)
    await api("a key in the address", "GET", "/api/instances?api_key=ghk_odd")
    made = await api("a reader", "POST", "/api/keys", {"scopes": ["read"]})
    reader = Caller("reader", made["key"])
    await api("a reader may not write", "POST", "/api/instances", GOOD, caller=reader)
    await api("a reader may not clear", "POST", "/api/cache/clear", caller=reader)
    await api(
        "nor change by reading", "GET", "/api/instances/comprehensive?syncLocalState=true", caller=reader
    )
    made = await api(
        "one a minute", "POST", "/api/keys", {"scopes": ["read"], "limits": {"requestsPerMinute": 1}}
    )
    once = Caller("once a minute", made["key"])
    await api("the first", "GET", "/api/regions", caller=once)
    await api("too many", "GET", "/api/regions", caller=once)
    await api("no route", "GET", "/api/nothing")
    await api("no route, and no key", "GET", "/api/nothing", caller=NOBODY)
    await api("no such method", "PUT", "/api/instances", GOOD)
    await api("no such method here", "DELETE", "/api/orphans/x")
    await api("a page without a session", "GET", "/instances", caller=NOBODY)
    own = {"X-Request-Id": "mine-1", "X-Correlation-Id": "yours-2"}
    await api("ids of the client", "GET", "/api/nothing", headers=own)
    odd = {"X-Request-Id": "odd id\x7f", "X-Correlation-Id": "yours-2"}
    await api("an id that nobody could read", "GET", "/api/nothing", headers=odd)
    api.recording.compare()


async def test_problems_of_servers(api: RecordedApi, plane: Plane, herd: Herd) -> None:
    wrong = replace(plane.services, money_caches=None)  # type: ignore[arg-type]  # that is the defect
    async with api.of(replace(plane, services=wrong)) as defective:
        await defective("a defect", "POST", "/api/cache/cleanup")
    refusal = Fault(FaultKind.REFUSE, count=1, status=400, reason="BAD", endpoints=(ApiEndpoint.PRODUCTS,))
    herd.world.faults.add(refusal)
    await api("the cloud refuses", "GET", "/api/products")
    refusal = Fault(FaultKind.REFUSE, count=1, status=401, reason="NO", endpoints=(ApiEndpoint.LIST,))
    herd.world.faults.add(refusal)
    await api("the cloud refuses our key", "POST", "/api/sync")
    herd.world.faults.add(Fault(FaultKind.RATE_LIMIT, for_s=60, retry_after="7"))
    await api("the cloud is asked too often", "POST", "/api/sync")
    await herd.clock.sleep(60)
    herd.world.faults.add(Fault(FaultKind.OUTAGE, for_s=60))
    await api("the cloud is out", "POST", "/api/sync")
    await herd.clock.sleep(60)
    herd.breaker_state = "OPEN"
    await api("a rental while the breaker is open", "POST", "/api/instances", GOOD)
    plane.services.event_feed.close()
    await api("a stream at the end of the server", "GET", "/api/events")
    api.recording.compare()


async def test_problems_of_workers(plane: Plane, recording: Recording) -> None:
    async with _client(build_application(plane, worker=True)) as http:
        api = RecordedApi(http, recording)
        await api("a worker is alive", "GET", "/livez", caller=NOBODY)
        await api("a worker does not serve the API", "GET", "/api/instances")
    recording.compare()


async def test_problems_of_slow_clients(plane: Plane, recording: Recording) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "request-1"}
    async with _client(build_application(plane, body_timeout_s=0.05)) as http:
        reply = await http.post("/api/instances", content=endless(), headers=headers)
    recording.heading("a body that never ends")
    recording.add("POST /api/instances", f"> {ADMIN.name}", f"< {reply.status_code}")
    recording.add(*header_lines("<", reply.headers.multi_items()))
    recording.add_body(reply.content)
    recording.compare()


def _client(app: ASGIApp) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gpuherd")
