"""`herd.prewarms`: what is asked, and how long it is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from gpuherd.client.client_errors import (
    Forbidden,
    NotFound,
    PrewarmFailed,
    PrewarmTimedOut,
)
from tests.client.support.server import AnyClient, FakeServer, lost, problem

QUOTA = {"used": 1, "limit": 5, "perImageGb": 100}


def task(state: str = "pending", **more: Any) -> dict[str, Any]:
    return {"id": "p1", "imageUrl": "a:1", "region": "CN-HK-01", "state": state, **more}


def listing(*states: str, **more: Any) -> dict[str, Any]:
    return {"prewarms": [task(it, **more) for it in states], "total": len(states), "quota": QUOTA}


def wait(**options: Any) -> Any:
    return lambda herd: herd.prewarms.wait("p1", **options)


async def test_only_what_was_said_is_sent(call: AnyClient, server: FakeServer) -> None:
    server.script(task())
    assert (await call(lambda it: it.prewarms.create("a:1", "CN-HK-01"))).state == "pending"
    assert server.seen[0].body == {"imageUrl": "a:1", "region": "CN-HK-01"}
    assert server.keys[0]
    said = {"registry_auth_id": "x", "products": ("4090",), "note": "n"}
    await call(lambda it: it.prewarms.create("a:1", "CN-HK-01", **said))
    assert server.seen[1].body == {
        "imageUrl": "a:1",
        "region": "CN-HK-01",
        "registryAuthId": "x",
        "products": ["4090"],
        "note": "n",
    }


async def test_a_list_is_filtered_and_says_the_quota(call: AnyClient, server: FakeServer) -> None:
    server.script(listing("failed", reasons=["no"]))
    (found,) = await call(lambda it: it.prewarms.list(state="failed", region="CN-HK-01"))
    assert found.reasons == ("no",)
    assert server.asked == ["GET /api/prewarms?state=failed&region=CN-HK-01"]
    quota = await call(lambda it: it.prewarms.quota())
    assert (quota.used, quota.limit, quota.per_image_gb) == (1, 5, 100)


async def test_it_is_waited_for_and_each_change_is_told_once(call: AnyClient, server: FakeServer) -> None:
    server.script(*map(listing, ("pending", "pending", "running", "succeeded")))
    told: list[str] = []
    done = await call(wait(on_progress=lambda it: told.append(it.state)))
    assert (done.state, told) == ("succeeded", ["pending", "running", "succeeded"])
    assert server.clock.slept == [5.0] * 3


async def test_a_failure_says_why(call: AnyClient, server: FakeServer) -> None:
    server.script(listing("running"), listing("failed", reasons=["access denied"]))
    with pytest.raises(PrewarmFailed, match="a:1 could not be pulled into CN-HK-01: access denied") as caught:
        await call(wait())
    assert caught.value.prewarm.id == "p1"


async def test_the_time_may_be_over_first(call: AnyClient, server: FakeServer) -> None:
    server.script(listing("running"))
    with pytest.raises(PrewarmTimedOut, match="p1 is running after 12 s") as caught:
        await call(wait(timeout_s=12))
    assert caught.value.prewarm is not None
    assert server.clock.passed_s == 12


async def test_an_outage_is_waited_out(call: AnyClient, server: FakeServer) -> None:
    down = [lost()] * 6 + [problem(503, "STORE_UNAVAILABLE")] * 6
    server.script(listing("running"), *down, listing("succeeded"))
    assert (await call(wait())).state == "succeeded"
    server.script(lost())
    with pytest.raises(PrewarmTimedOut, match=r"not known .*could not be asked"):
        await call(wait(timeout_s=20))
    server.script(problem(403, "FORBIDDEN"))
    with pytest.raises(Forbidden):
        await call(wait())


async def test_a_new_task_may_be_listed_late_and_one_that_vanished_is_not_waited_for(
    call: AnyClient, server: FakeServer
) -> None:
    server.script(listing(), listing(), listing("succeeded"))
    assert (await call(wait())).state == "succeeded"
    server.script(listing())
    with pytest.raises(NotFound):
        await call(wait())
    before = server.clock.passed_s
    server.script(listing("running"), listing())
    with pytest.raises(NotFound):
        await call(wait(timeout_s=10))
    assert server.clock.passed_s - before == 5
