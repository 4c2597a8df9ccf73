"""`?wait=`: a reply that comes when there is something to tell, or when nobody listens any more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd


async def launched(api: httpx.AsyncClient) -> str:
    return str((await api.post("/api/instances", json=GOOD)).json()["id"])


async def test_a_reply_comes_when_the_instance_is_ready(
    api: httpx.AsyncClient, herd: Herd, clock: FakeClock
) -> None:
    instance_id = await launched(api)
    params = {"wait": "ready", "timeout": "300"}
    waiting = asyncio.create_task(api.get(f"/api/instances/{instance_id}", params=params))
    by_name = asyncio.create_task(api.get("/api/instances/job", params=params))
    ready = await herd.settle(await herd.get(instance_id))
    for reply in (await waiting, await by_name):
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "application/json"
        assert "x-wait-timed-out" not in reply.headers
        assert (reply.json()["usable"], reply.json()["stale"]) == (True, False)
        assert reply.json()["id"] == ready.id


@pytest.mark.parametrize(("query", "waited_s"), [("", 30), ("&timeout=0", 0), ("&timeout=2.5", 2.5)])
async def test_a_wait_that_times_out_says_so(
    api: httpx.AsyncClient, clock: FakeClock, query: str, waited_s: float
) -> None:
    instance_id = await launched(api)
    asked_at = clock.now()
    reply = await api.get(f"/api/instances/{instance_id}?wait=ready{query}")
    assert (reply.status_code, reply.headers["x-wait-timed-out"]) == (200, "true")
    assert reply.json()["status"] == "creating"
    assert clock.now() - asked_at == timedelta(seconds=waited_s)


@pytest.mark.parametrize(
    "query",
    [
        "wait=done",
        "wait=",
        "wait=READY",
        "wait=ready&timeout=301",
        "wait=ready&timeout=-1",
        "wait=ready&timeout=x",
        "wait=ready&timeout=",
        "wait=ready&timeout=1e2",
        "wait=ready&timeout=nan",
        "wait=ready&timeout=inf",
        "wait=ready&timeout=%D9%A1",
        "timeout=999",
    ],
)
async def test_a_wait_that_makes_no_sense_is_refused(api: httpx.AsyncClient, query: str) -> None:
    instance_id = await launched(api)
    reply = await api.get(f"/api/instances/{instance_id}?{query}")
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_PARAMETER")


async def test_a_wait_for_nobody_is_not_found_at_once(api: httpx.AsyncClient, clock: FakeClock) -> None:
    before = clock.now()
    for word in ("nobody", "inst_" + "z" * 26):
        reply = await api.get(f"/api/instances/{word}?wait=ready")
        assert (reply.status_code, reply.json()["code"]) == (404, "INSTANCE_NOT_FOUND")
    assert clock.now() == before


class Caller:
    """A client that sends one request as ASGI and then goes away."""

    def __init__(self, path: str, query: str, *bodies: bytes):
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"authorization", f"Bearer {KEY}".encode())],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("gpuherd", 80),
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        self.bodies = list(bodies)
        self.left = asyncio.Event()
        self.heard: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if self.bodies:
            return {"type": "http.request", "body": self.bodies.pop(0), "more_body": bool(self.bodies)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.heard.append(message)


async def test_a_wait_ends_when_its_caller_goes_away(
    plane: Plane, api: httpx.AsyncClient, herd: Herd, clock: FakeClock
) -> None:
    instance_id = await launched(api)
    caller = Caller(f"/api/instances/{instance_id}", "wait=ready&timeout=300", b"")
    started = clock.now()
    call = asyncio.ensure_future(build_application(plane)(caller.scope, caller.receive, caller.send))
    await clock.sleep(7)
    assert herd.hub.watched == 1
    caller.left.set()
    await call
    await clock.settle()
    assert clock.now() - started < timedelta(seconds=8)
    assert (herd.hub.watched, clock.sleepers) == (0, 0)
    assert caller.heard[0]["status"] == 499


async def test_a_wait_that_the_server_cancels_leaves_nothing_behind(
    plane: Plane, api: httpx.AsyncClient, herd: Herd, clock: FakeClock
) -> None:
    instance_id = await launched(api)
    caller = Caller(f"/api/instances/{instance_id}", "wait=ready&timeout=300", b"")
    call = asyncio.ensure_future(build_application(plane)(caller.scope, caller.receive, caller.send))
    await clock.sleep(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await clock.settle()
    assert (herd.hub.watched, clock.sleepers) == (0, 0)


async def test_a_wait_with_an_endless_body_is_refused(
    plane: Plane, api: httpx.AsyncClient, herd: Herd
) -> None:
    instance_id = await launched(api)
    caller = Caller(
        f"/api/instances/{instance_id}", "wait=ready&timeout=300", *[b"x" * 65536 for _ in range(40)]
    )
    await build_application(plane)(caller.scope, caller.receive, caller.send)
    assert caller.heard[0]["status"] == 413
    assert len(caller.bodies) > 0
    assert herd.hub.watched == 0
