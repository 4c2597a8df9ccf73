"""A rental is released whatever happens, and if it cannot be, that is said loudly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from gpuherd.client.async_client import AsyncGpuherd
from gpuherd.client.client_errors import (
    ConnectionFailed,
    InstanceFailed,
    NoCapacity,
    NotReleased,
    WaitTimedOut,
)
from gpuherd.client.client_transport import ReplyStream, Request
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.instance_models import Instance
from tests.client.support.server import (
    STILL,
    AnyClient,
    FakeReply,
    FakeServer,
    accepted,
    client_of,
    details,
    lost,
    problem,
    refused,
)

CREATE, LOOK, DELETE = "POST /api/instances", "GET /api/instances/inst_1", "DELETE /api/instances/inst_1"
STOP = "POST /api/instances/inst_1/stop"


class Oops(Exception):
    """What the user's own program may raise."""


def nothing(_: Instance) -> None:
    """Use the GPU for nothing."""


def raising(error: BaseException) -> Callable[[Instance], None]:
    def body(_: Instance) -> None:
        raise error

    return body


async def test_it_is_usable_inside_and_deleted_after(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(details(), 201), details("running"), accepted())
    used: list[Instance] = []
    await call.renting(used.append, max_hourly_price=1, labels={"team": "a"})
    assert [it.usable for it in used] == [True]
    assert server.asked == [CREATE, f"{LOOK}?wait=ready&timeout=20", DELETE]
    assert server.seen[0].body == {
        "name": "train-1",
        "productName": "RTX 4090 24GB",
        "templateId": 101,
        "maxHourlyPrice": "1",
        "labels": {"team": "a"},
    }


async def test_it_can_be_stopped_instead(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(details(), 201), details("running"), accepted("stopping"))
    await call.renting(nothing, release="stop")
    assert server.asked[-1] == STOP


async def test_who_has_taken_over_is_released_too(call: AnyClient, server: FakeServer) -> None:
    """The old one was replaced meanwhile: its delete alone would leave the new one running."""
    replaced, last = details("deleted", replacedBy="inst_2"), details("deleted", id="inst_2", replacedBy=None)
    server.script(FakeReply(details(), 201), details("running"), accepted(), replaced, accepted(), last)
    await call.renting(nothing, on_reclaim="replace")
    assert server.asked[2:] == [DELETE, LOOK, "DELETE /api/instances/inst_2", "GET /api/instances/inst_2"]


async def test_a_misspelt_release_is_found_before_anything_is_rented(
    call: AnyClient, server: FakeServer
) -> None:
    with pytest.raises(ValueError, match="release"):
        await call.renting(nothing, release="destroy")
    assert server.seen == []


@pytest.mark.parametrize("error", [Oops("boom"), KeyboardInterrupt(), SystemExit(3)])
async def test_it_is_released_when_the_block_ends_with_an_error(
    server: FakeServer, error: BaseException
) -> None:
    call = client_of("sync", server)
    server.script(FakeReply(details(), 201), details("running"), accepted())
    with pytest.raises(type(error)) as caught:
        await call.renting(raising(error))
    assert caught.value is error
    assert server.asked[-1] == DELETE


async def test_an_error_in_an_async_block_releases_it(server: FakeServer) -> None:
    call = client_of("async", server)
    server.script(FakeReply(details(), 201), details("running"), accepted())
    with pytest.raises(Oops):
        await call.renting(raising(Oops()))
    assert server.asked[-1] == DELETE


async def test_it_is_kept_on_error_if_that_is_wanted(
    call: AnyClient, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(FakeReply(details(), 201), details("running"), accepted())
    with pytest.raises(Oops) as caught:
        await call.renting(raising(Oops()), keep_on_error=True)
    assert DELETE not in server.asked
    (note,) = caught.value.__notes__
    assert "inst_1" in note and "$0.35 an hour" in note and "gpuherd rm inst_1" in note
    assert note in caplog.text


async def test_it_is_not_kept_without_an_error(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(details(), 201), details("running"), accepted())
    await call.renting(nothing, keep_on_error=True)
    assert server.asked[-1] == DELETE


def test_an_interrupt_is_no_error_to_keep_it_for(server: FakeServer) -> None:
    herd = client_of("sync", server).herd
    assert isinstance(herd, Gpuherd)
    server.script(FakeReply(details(), 201), details("running"), accepted())
    with (
        pytest.raises(KeyboardInterrupt),
        herd.rent("train-1", product_name="x", template_id=1, keep_on_error=True),
    ):
        raise KeyboardInterrupt
    assert server.asked[-1] == DELETE


async def test_what_failed_or_took_too_long_is_released(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(details(), 201), details("failed"), accepted())
    with pytest.raises(InstanceFailed):
        await call.renting(nothing)
    assert server.asked[-1] == DELETE

    def slow(request: Request) -> FakeReply:
        return FakeReply(details(), headers=STILL, after_s=5) if request.method == "GET" else accepted()

    server.script(FakeReply(details(), 201), slow)
    with pytest.raises(WaitTimedOut):
        # What never was usable holds nothing worth keeping.
        await call.renting(nothing, timeout_s=10, release="stop")
    assert server.asked[-1] == DELETE


async def test_the_callback_hears_of_it_from_the_moment_it_is_accepted(
    call: AnyClient, server: FakeServer
) -> None:
    told: list[tuple[str, str]] = []
    server.script(FakeReply(details(), 201), details("running"), accepted())
    await call.renting(nothing, on_progress=lambda it: told.append((it.id, it.status)))
    assert told == [("inst_1", "creating"), ("inst_1", "running")]


async def test_an_error_of_the_callback_releases_it(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(details(), 201), accepted())
    with pytest.raises(Oops):
        await call.renting(nothing, on_progress=raising(Oops()))
    assert server.asked[-1] == DELETE


async def test_a_refused_create_leaves_nothing_to_release(call: AnyClient, server: FakeServer) -> None:
    server.script(problem(409, "NO_OPTIMAL_PRODUCT_ANY_REGION", "sold out"))
    with pytest.raises(NoCapacity, match="sold out"):
        await call.renting(nothing)
    server.script(refused())
    with pytest.raises(ConnectionFailed):
        await call.renting(nothing)
    assert server.asked == [CREATE] * 6


def test_an_interrupt_during_the_create_releases_what_it_may_have_made(server: FakeServer) -> None:
    herd = client_of("sync", server).herd
    assert isinstance(herd, Gpuherd)
    server.script(KeyboardInterrupt(), FakeReply(details(), 201), accepted())
    with pytest.raises(KeyboardInterrupt), herd.rent("train-1", product_name="x", template_id=1):
        raise AssertionError("never entered")
    # The same create with the same key tells which instance it is, and makes no second one.
    assert server.asked == [CREATE, CREATE, DELETE]
    assert server.keys[0] == server.keys[1]
    assert server.seen[0].body == server.seen[1].body


async def test_lost_answers_to_the_create_release_what_it_may_have_made(
    call: AnyClient, server: FakeServer
) -> None:
    server.script(*[lost()] * 5, refused(), FakeReply(details(), 201), accepted())
    with pytest.raises(ConnectionFailed):
        await call.renting(nothing)
    assert server.asked == [CREATE] * 7 + [DELETE]
    assert len(set(server.keys[:7])) == 1


async def test_a_create_that_turns_out_to_have_been_refused_needs_no_release(
    call: AnyClient, server: FakeServer
) -> None:
    server.script(*[lost()] * 5, problem(409, "NO_OPTIMAL_PRODUCT_ANY_REGION"))
    with pytest.raises(ConnectionFailed) as caught:
        await call.renting(nothing)
    assert DELETE not in server.asked
    assert not hasattr(caught.value, "__notes__")


async def test_a_create_whose_fate_stays_unknown_is_told_loudly(
    call: AnyClient, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(lost())
    with pytest.raises(ConnectionFailed) as caught:
        await call.renting(nothing)
    (note,) = caught.value.__notes__
    assert "'train-1' may have been rented" in note and "gpuherd ls" in note
    assert caplog.records[-1].levelno == logging.CRITICAL


async def test_the_release_is_repeated_for_two_minutes(call: AnyClient, server: FakeServer) -> None:
    troubles: list[Any] = [refused(), lost(), problem(500, "INTERNAL_ERROR"), problem(503, "X", retryAfter=9)]
    server.script(FakeReply(details(), 201), details("running"), *troubles * 3, accepted())
    await call.renting(nothing)
    deletes = [it for it in server.seen if it.method == "DELETE"]
    assert len(deletes) == 13
    assert len({it.idempotency_key for it in deletes}) == 1


async def test_a_release_that_fails_is_an_error_that_names_the_instance(
    call: AnyClient, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(FakeReply(details(), 201), details("running"), refused())
    with pytest.raises(NotReleased) as caught:
        await call.renting(nothing)
    assert 100 < server.clock.passed_s <= 120
    assert caught.value.instance is not None and caught.value.instance.id == "inst_1"
    assert "train-1 (inst_1) may still run and cost $0.35 an hour" in str(caught.value)
    assert "gpuherd rm inst_1" in caplog.text


async def test_a_release_that_fails_does_not_hide_the_error_of_the_block(
    call: AnyClient, server: FakeServer
) -> None:
    server.script(FakeReply(details(), 201), details("running"), problem(403, "FORBIDDEN"))
    with pytest.raises(Oops) as caught:
        await call.renting(raising(Oops()))
    assert "may still run" in caught.value.__notes__[0]


async def test_what_is_gone_already_is_released(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(details(), 201), details("running"), problem(404, "INSTANCE_NOT_FOUND"))
    await call.renting(nothing)
    assert server.asked[-1] == DELETE
    for status in ("exited", "deleting", "deleted"):
        down = problem(409, "INSTANCE_NOT_STOPPABLE", details={"status": status})
        server.script(FakeReply(details(), 201), details("running"), down)
        await call.renting(nothing, release="stop")
        assert server.asked[-1] == STOP


async def test_a_stop_that_is_not_possible_is_told(call: AnyClient, server: FakeServer) -> None:
    failed = problem(409, "INSTANCE_NOT_STOPPABLE", details={"status": "failed"})
    server.script(FakeReply(details(), 201), details("running"), failed)
    with pytest.raises(NotReleased, match="its stop was not accepted"):
        await call.renting(nothing, release="stop")


def test_a_second_interrupt_ends_the_release_but_not_silently(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    herd = client_of("sync", server).herd
    assert isinstance(herd, Gpuherd)
    first = KeyboardInterrupt()
    server.script(FakeReply(details(), 201), details("running"), KeyboardInterrupt())
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        herd.rent("train-1", product_name="x", template_id=1),
    ):
        raise first
    assert caught.value is not first
    assert "gpuherd rm inst_1" in caught.value.__notes__[0]
    assert "gpuherd rm inst_1" in caplog.text


class Gate:
    """Holds requests of one method until a test opens it."""

    def __init__(self, server: FakeServer, method: str) -> None:
        self._server, self._method = server, method
        self.arrived, self.open = asyncio.Event(), asyncio.Event()

    async def send(self, request: Request) -> Any:
        if request.method == self._method:
            self.arrived.set()
            await self.open.wait()
        return await self._server.send(request)

    async def listen(self, request: Request) -> ReplyStream:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


def gated(server: FakeServer, method: str) -> tuple[Gate, AsyncGpuherd]:
    gate = Gate(server, method)
    return gate, AsyncGpuherd("http://x", "k", transport=gate, clock=server.clock)


async def rent_and_sleep(herd: AsyncGpuherd, inside: asyncio.Event) -> None:
    async with herd.rent("train-1", product_name="x", template_id=1):
        inside.set()
        await asyncio.Event().wait()


async def test_a_cancelled_block_releases_it(server: FakeServer) -> None:
    herd = client_of("async", server).herd
    assert isinstance(herd, AsyncGpuherd)
    server.script(FakeReply(details(), 201), details("running"), accepted())
    inside = asyncio.Event()
    task = asyncio.ensure_future(rent_and_sleep(herd, inside))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.asked[-1] == DELETE


async def test_cancelling_again_and_again_does_not_stop_the_release(server: FakeServer) -> None:
    gate, herd = gated(server, "DELETE")
    server.script(FakeReply(details(), 201), details("running"), accepted())
    inside = asyncio.Event()
    task = asyncio.ensure_future(rent_and_sleep(herd, inside))
    await inside.wait()
    task.cancel()
    await gate.arrived.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.asked[-1] == DELETE


async def test_a_cancellation_during_the_release_comes_after_it(server: FakeServer) -> None:
    gate, herd = gated(server, "DELETE")
    server.script(FakeReply(details(), 201), details("running"), accepted())

    async def rent() -> None:
        async with herd.rent("train-1", product_name="x", template_id=1):
            pass

    task = asyncio.ensure_future(rent())
    await gate.arrived.wait()
    task.cancel()
    await asyncio.sleep(0)
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.asked[-1] == DELETE


async def test_a_create_that_is_cancelled_releases_what_it_may_have_made(server: FakeServer) -> None:
    gate, herd = gated(server, "POST")
    server.script(FakeReply(details(), 201), accepted())
    task = asyncio.ensure_future(rent_and_sleep(herd, asyncio.Event()))
    await gate.arrived.wait()
    task.cancel()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.asked == [CREATE, DELETE]


async def test_a_timeout_around_it_works_as_ever(server: FakeServer) -> None:
    herd = client_of("async", server).herd
    assert isinstance(herd, AsyncGpuherd)
    server.script(FakeReply(details(), 201), details("running"), accepted())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await rent_and_sleep(herd, asyncio.Event())
    assert server.asked[-1] == DELETE
