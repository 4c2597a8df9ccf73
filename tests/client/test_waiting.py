"""Waiting: until it is there, will not be, or the time is over; outages do not end it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuherd.client.client_errors import (
    ConnectionFailed,
    GpuherdError,
    InstanceFailed,
    NotFound,
    WaitTimedOut,
)
from gpuherd.client.follow_instance import outcome_of
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.operation_models import Operation
from tests.client.support.server import (
    STILL,
    AnyClient,
    FakeReply,
    FakeServer,
    details,
    lost,
    problem,
    refused,
)


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


def an_operation(status: str = "running", kind: str = "start", **more: Any) -> dict[str, Any]:
    return {"operationId": "op_1", "instanceId": "inst_1", "type": kind, "status": status, **more}


def follow(instance: dict[str, Any], **options: Any) -> Any:
    return lambda herd: herd.instances.follow(Instance.of(instance), **options)


class TestFollowing:
    async def test_what_was_read_just_now_is_not_asked_for_again(
        self, call: AnyClient, server: FakeServer
    ) -> None:
        server.script(details("running"))
        assert (await call(follow(details()))).usable
        assert server.asked == ["GET /api/instances/inst_1?wait=ready&timeout=20"]

    async def test_every_answer_and_every_trouble_is_told(self, call: AnyClient, server: FakeServer) -> None:
        server.script(FakeReply(details(), headers=STILL), refused(), details("running"))
        told: list[str] = []
        troubles: list[GpuherdError] = []
        following = follow(
            details(), on_answer=lambda it, _: told.append(it.status), on_trouble=troubles.append
        )
        await call(following)
        assert told == ["creating", "creating", "running"]
        assert [type(it) for it in troubles] == [ConnectionFailed]

    async def test_the_end_of_an_operation_decides_and_the_instance_is_read_after_it(
        self, call: AnyClient, server: FakeServer
    ) -> None:
        ended = an_operation("succeeded", "stop")
        server.script(details("stopping"), ended, details("exited"))
        stop = Operation.of(an_operation(kind="stop"))
        assert (await call(follow(details(), until="exited", operation=stop))).status == "exited"
        assert server.asked[1:] == ["GET /api/operations/op_1", "GET /api/instances/inst_1"]

    @pytest.mark.parametrize("status", ["failed", "superseded"])
    async def test_an_operation_that_ends_otherwise_is_an_error_with_it(
        self, call: AnyClient, server: FakeServer, status: str
    ) -> None:
        error = {"code": "RESOURCE_CONSTRAINTS", "message": "no GPU was free"}
        server.script(details("exited"), an_operation(status, error=error), details("exited"))
        with pytest.raises(InstanceFailed, match="RESOURCE_CONSTRAINTS") as caught:
            await call(follow(details("exited"), operation=Operation.of(an_operation())))
        assert caught.value.operation is not None and caught.value.operation.status == status

    async def test_a_start_under_way_is_found_and_followed(self, call: AnyClient, server: FakeServer) -> None:
        exited = details("exited", operationId="op_1")
        up = details("running")
        server.script(an_operation(), exited, an_operation(), up, an_operation("succeeded"), up)
        assert (await call(follow(exited))).usable

    async def test_what_cannot_come_is_not_waited_for(self, call: AnyClient, server: FakeServer) -> None:
        with pytest.raises(InstanceFailed):
            await call(follow(details("failed")))
        assert server.asked == []

    async def test_a_timeout_tells_whether_the_server_could_be_asked(
        self, call: AnyClient, server: FakeServer
    ) -> None:
        server.script(refused())
        with pytest.raises(WaitTimedOut) as caught:
            await call(follow(details(), timeout_s=3))
        assert not caught.value.is_reachable


@pytest.mark.parametrize(
    ("until", "status", "goal", "outcome"),
    [
        ("ready", "running", "running", True),
        ("ready", "starting", "running", None),
        ("ready", "exited", "running", False),
        ("ready", "starting", "stopped", False),
        ("ready", "starting", "deleted", False),
        ("exited", "exited", "stopped", True),
        ("exited", "running", "running", None),
        ("exited", "running", "deleted", False),
        ("deleted", "deleted", "deleted", True),
        ("deleted", "failed", "deleted", None),
        ("deleted", "failed", "running", False),
    ],
)
def test_when_there_is_nothing_left_to_wait_for(
    until: Any, status: str, goal: str, outcome: bool | None
) -> None:
    assert outcome_of(Instance.of(details(status, goal=goal)), until) is outcome
