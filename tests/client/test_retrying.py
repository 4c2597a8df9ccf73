"""What is repeated, how often, and what never is."""

from __future__ import annotations

import pytest

from gpuherd.client import (
    Conflict,
    ConnectionFailed,
    GpuherdError,
    TooManyRequests,
    Unavailable,
    UnexpectedReply,
)
from gpuherd.client.effects import run
from gpuherd.client.retrying import RetryingCaller
from gpuherd.client.transport.wire import Request
from tests.client.support.server import (
    Answer,
    AnyClient,
    FakeReply,
    FakeServer,
    client_of,
    details,
    lost,
    problem,
    refused,
)

BUSY = problem(503, "NETWORK_ERROR", retryAfter=2)


def create(herd: object) -> object:
    return herd.instances.create("train-1", "RTX 4090 24GB", 101)  # type: ignore[attr-defined]


@pytest.mark.parametrize("trouble", [lost(), refused(), problem(502, "CLOUD_ERROR"), BUSY])
async def test_a_create_is_repeated_with_the_same_key(
    call: AnyClient, server: FakeServer, trouble: Answer
) -> None:
    server.script(trouble, trouble, FakeReply(details(), 201))
    assert (await call(create)).id == "inst_1"
    assert len(server.seen) == 3
    assert len(set(server.keys)) == 1 and server.keys[0]


async def test_each_create_has_a_key_of_its_own_unless_one_is_given(
    call: AnyClient, server: FakeServer
) -> None:
    server.script(FakeReply(details(), 201))
    await call(create)
    await call(create)
    await call(lambda herd: herd.instances.create("a", "b", 1, idempotency_key="mine"))
    first, second, third = server.keys
    assert first != second and third == "mine"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_retries_can_be_left_to_the_caller(kind: str, server: FakeServer) -> None:
    server.script(BUSY)
    with pytest.raises(Unavailable):
        await client_of(kind, server, max_retries=0)(create)
    assert (len(server.seen), server.clock.slept) == (1, [])


async def test_it_gives_up_after_some_tries(call: AnyClient, server: FakeServer) -> None:
    server.script(refused())
    with pytest.raises(ConnectionFailed) as caught:
        await call(create)
    assert len(server.seen) == 5
    assert sum(server.clock.slept) < 4
    assert caught.value.may_have_happened is False
    assert caught.value.idempotency_key == server.keys[0]


async def test_no_try_begins_after_the_time_of_one_answer(call: AnyClient, server: FakeServer) -> None:
    def slow(_: Request) -> ConnectionFailed:
        server.clock.passed_s += 30
        return lost()

    server.script(slow)
    with pytest.raises(ConnectionFailed):
        await call(create)
    assert len(server.seen) == 1


async def test_one_lost_answer_leaves_it_open_whether_it_happened(
    call: AnyClient, server: FakeServer
) -> None:
    server.script(lost(), problem(409, "NO_OPTIMAL_PRODUCT_ANY_REGION"))
    with pytest.raises(Conflict) as caught:
        await call(create)
    assert caught.value.may_have_happened is True


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(500, "INTERNAL_ERROR"), Unavailable),
        (problem(409, "CONFLICT"), Conflict),
        (problem(429, "QUOTA_EXCEEDED"), TooManyRequests),
        (problem(503, "NETWORK_ERROR", retryAfter=3600), Unavailable),
        (FakeReply(b"<html>", 200), UnexpectedReply),
    ],
)
async def test_what_a_repeat_cannot_help_is_asked_once(
    call: AnyClient, server: FakeServer, answer: FakeReply, kind: type[GpuherdError]
) -> None:
    server.script(answer)
    with pytest.raises(kind):
        await call(create)
    assert len(server.seen) == 1


async def test_it_waits_as_long_as_the_server_asks(call: AnyClient, server: FakeServer) -> None:
    server.script(problem(429, "RATE_LIMIT_EXCEEDED", retryAfter=7), BUSY, details())
    await call(lambda herd: herd.instances.get("train-1"))
    assert server.clock.slept == [7, 2]


async def test_retry_after_in_a_header_counts_as_well(call: AnyClient, server: FakeServer) -> None:
    server.script(FakeReply(b"busy", 503, {"retry-after": "4"}), details())
    await call(lambda herd: herd.instances.get("train-1"))
    assert server.clock.slept == [4]


@pytest.mark.parametrize(
    "order",
    [
        lambda herd: herd.instances.stop("train-1"),
        lambda herd: herd.instances.start("train-1"),
        lambda herd: herd.instances.restart("train-1"),
        lambda herd: herd.instances.delete("train-1"),
        lambda herd: herd.sync(),
        lambda herd: herd.orphans.delete("m1"),
        lambda herd: herd.webhooks.test("https://example.com"),
        lambda herd: herd.keys.revoke("k1"),
    ],
)
async def test_every_change_carries_a_key(call: AnyClient, server: FakeServer, order: object) -> None:
    server.script(refused())
    with pytest.raises(ConnectionFailed):
        await call(order)  # type: ignore[arg-type]
    assert len(server.seen) == 5
    assert server.keys == [server.keys[0]] * 5 and server.keys[0]


def test_a_change_without_a_key_is_never_repeated(server: FakeServer) -> None:
    import random

    server.script(lost())
    caller = RetryingCaller(server.clock, random.Random(1), 30)
    with pytest.raises(ConnectionFailed):
        run(caller.call(Request("POST", "/api/sync")), lambda effect: server.send(effect.request))  # type: ignore[union-attr]
    assert len(server.seen) == 1


def test_a_key_that_no_header_can_hold_is_refused() -> None:
    for key in ("", "two words", "a\r\nX: y", "ü", "x" * 256):
        with pytest.raises(ValueError, match="idempotency_key"):
            Request("POST", "/", idempotency_key=key)
