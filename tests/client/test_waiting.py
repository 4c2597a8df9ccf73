"""Waiting: until it is there, will not be, or the time is over; outages do not end it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuherd.client import ConnectionFailed, Instance, InstanceFailed, NotFound, WaitTimedOut
from tests.client.support import STILL, AnyClient, FakeReply, FakeServer, details, lost, problem, refused


def wait(**options: Any) -> Any:
    return lambda herd: herd.instances.wait("train-1", **options)


async def test_what_is_there_already_is_returned_at_once(call: AnyClient, server: FakeServer) -> None:
    server.script(details("running"))
    assert (await call(wait())).status == "running"
    assert server.asked == ["GET /api/instances/train-1"]


async def test_it_is_followed_by_id_with_a_long_poll(call: AnyClient, server: FakeServer) -> None:
    server.script(details(), FakeReply(details("starting"), headers=STILL, after_s=20), details("running"))
    assert (await call(wait())).usable
    poll = "GET /api/instances/inst_1?wait=ready&timeout=20"
    assert server.asked == ["GET /api/instances/train-1", poll, poll]
    # The answer may take as long as the poll and a bit.
    assert server.seen[1].timeout_s == 30
    assert sum(server.clock.slept) == 0


@pytest.mark.parametrize(("until", "status"), [("exited", "exited"), ("deleted", "deleted")])
async def test_other_ends_can_be_waited_for(
    call: AnyClient, server: FakeServer, until: str, status: str
) -> None:
    server.script(details("running"), details(status))
    assert (await call(wait(until=until))).status == status
    assert f"wait={until}" in server.asked[1]


async def test_progress_is_told_once_for_each_change(call: AnyClient, server: FakeServer) -> None:
    server.script(
        details(),
        FakeReply(details(), headers=STILL, after_s=2),
        FakeReply(details("starting"), headers=STILL, after_s=2),
        FakeReply(details("starting", statusReason="pulling the image"), headers=STILL, after_s=2),
        details("running"),
    )
    told: list[Instance] = []
    await call(wait(on_progress=told.append))
    assert [(it.status, it.status_reason) for it in told] == [
        ("creating", "it is creating"),
        ("starting", "it is starting"),
        ("starting", "pulling the image"),
        ("running", "it is running"),
    ]
    # With somebody to tell, the stages between are asked for.
    assert "timeout=2" in server.asked[1]


async def test_what_will_not_come_is_an_error_with_the_instance(call: AnyClient, server: FakeServer) -> None:
    error = {"code": "STARTUP_TIMEOUT", "message": "too slow"}
    server.script(details(), details("failed", statusReason="still pulling", lastError=error))
    with pytest.raises(InstanceFailed) as caught:
        await call(wait())
    assert caught.value.instance.status == "failed"
    assert "still pulling (STARTUP_TIMEOUT)" in str(caught.value)
    assert "events('inst_1')" in str(caught.value)


async def test_the_time_is_over_when_it_is_over(call: AnyClient, server: FakeServer) -> None:
    def held(request: Any) -> FakeReply:
        return FakeReply(details(), headers=STILL, after_s=float(dict(request.query)["timeout"]))

    server.script(details(), held)
    with pytest.raises(WaitTimedOut) as caught:
        await call(wait(timeout_s=50))
    assert server.clock.passed_s == 50
    assert [dict(it.query).get("timeout") for it in server.seen] == [None, "20", "20", "10"]
    assert caught.value.instance.status == "creating"
    assert "after 50 s" in str(caught.value)


async def test_an_outage_is_waited_out(call: AnyClient, server: FakeServer) -> None:
    server.script(
        details(),
        refused(),
        lost(),
        problem(503, "STORE_UNAVAILABLE", retryAfter=5),
        problem(429, "RATE_LIMIT_EXCEEDED", retryAfter=3),
        problem(500, "INTERNAL_ERROR"),
        details("running"),
    )
    assert (await call(wait())).usable
    assert server.clock.slept == [1, 1, 5, 3, 1]


async def test_an_outage_does_not_last_for_ever(call: AnyClient, server: FakeServer) -> None:
    server.script(details(), refused())
    with pytest.raises(WaitTimedOut, match=r"could not be asked at the end: .*connection refused"):
        await call(wait(timeout_s=10))
    assert server.clock.passed_s == 10


async def test_a_server_that_was_never_there_is_no_outage(call: AnyClient, server: FakeServer) -> None:
    server.script(refused())
    with pytest.raises(ConnectionFailed):
        await call(wait())


async def test_a_refusal_ends_it(call: AnyClient, server: FakeServer) -> None:
    server.script(details(), problem(404, "INSTANCE_NOT_FOUND"))
    with pytest.raises(NotFound):
        await call(wait())


async def test_a_server_that_does_not_hold_the_question_back_is_not_flooded(
    call: AnyClient, server: FakeServer
) -> None:
    server.script(details(), FakeReply(details(), headers=STILL))
    with pytest.raises(WaitTimedOut):
        await call(wait(timeout_s=10))
    assert len(server.seen) == 11
