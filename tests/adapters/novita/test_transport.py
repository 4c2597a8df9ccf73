"""Whose turn it is, whether to ask at all, what is asked again, and what anybody learns of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from gpuherd.adapters.novita.novita_transport import CallRecord
from gpuherd.domain.errors import (
    CircuitOpen,
    CloudRefused,
    CloudUnavailable,
    KeyRefused,
    OutcomeUnknown,
    RateLimited,
)
from gpuherd.resilience.circuit_breaker import BreakerState, CircuitBreaker
from gpuherd.resilience.rate_limiter import Lane, RateLimiter
from tests.adapters.novita.builders import ORDER, open_cloud, open_transport
from tests.adapters.novita.raw_server import Request, free_port, http, in_turn, raw_server, reset, saying
from tests.support.fake_clock import FakeClock

OK = http(200, {"data": []})
ERROR = http(500, {"code": 500, "reason": "UNKNOWN", "message": "oh"})
CREATE = "/gpu/instance/create"


def refusal(status: int, *headers: str) -> bytes:
    return http(status, {"code": status, "reason": "REQUEST", "message": "no"}, *headers)


@pytest.mark.parametrize("failure", [ERROR, http(502, b"<html>"), refusal(429), refusal(408)])
async def test_a_read_is_tried_three_times(failure):
    async with raw_server(saying(failure)) as server, open_transport(server.base_url) as transport:
        with pytest.raises(CloudUnavailable):
            await transport.read("/products")
        assert len(server.requests) == 3


async def test_a_read_that_works_at_last_is_an_answer():
    answer = in_turn(ERROR, ERROR, OK)
    async with raw_server(answer) as server, open_transport(server.base_url) as transport:
        assert await transport.read("/products") == {"data": []}


async def test_the_wait_between_tries_is_drawn_from_a_growing_range():
    clock = FakeClock(auto=True)
    waits = []
    async with raw_server(saying(ERROR)) as server:
        for seed in range(60):
            settings = {"rng": random.Random(seed), "breaker": CircuitBreaker(clock, threshold=10**6)}
            async with open_transport(server.base_url, clock=clock, **settings) as transport:
                began = clock.monotonic()
                with pytest.raises(CloudUnavailable):
                    await transport.read("/products")
                waits.append(clock.monotonic() - began)
    assert 0 < min(waits) < 1
    assert 2 < max(waits) <= 3


@pytest.mark.parametrize(
    "failure", [refusal(400), refusal(404), refusal(401), http(200, b"<html>"), http(302, b"")]
)
async def test_what_a_repeat_would_not_change_is_not_repeated(failure):
    async with raw_server(saying(failure)) as server, open_transport(server.base_url) as transport:
        with pytest.raises((CloudRefused, CloudUnavailable)):
            await transport.read("/products")
        assert len(server.requests) == 1


async def test_no_try_begins_after_the_deadline():
    clock = FakeClock(auto=True)
    answer = saying(http(503, b"", "Retry-After: 20"))
    async with raw_server(answer) as server, open_transport(server.base_url, clock=clock) as transport:
        began = clock.monotonic()
        with pytest.raises(CloudUnavailable):
            await transport.read("/products")
        assert clock.monotonic() - began == pytest.approx(40)
    async with (
        raw_server(answer) as server,
        open_transport(server.base_url, clock=clock, read_deadline_s=30) as transport,
    ):
        with pytest.raises(CloudUnavailable):
            await transport.read("/products")
        assert len(server.requests) == 2


NOW = FakeClock().now()


@pytest.mark.proves("F8")
@pytest.mark.parametrize(
    ("header", "expected_s"),
    [
        ("Retry-After: 7", 7),
        ("Retry-After: 0", 0),
        ("Retry-After: -5", 0),
        (f"Retry-After: {format_datetime(NOW + timedelta(seconds=9), usegmt=True)}", 9),
        ("Retry-After: 1000000000", 300),
        ("Retry-After: soon", None),
        ("X-Nothing: 1", None),
    ],
)
async def test_every_form_of_retry_after_is_understood(header, expected_s):
    clock = FakeClock()
    async with (
        raw_server(saying(refusal(429, header))) as server,
        open_cloud(server.base_url, clock=clock) as cloud,
    ):
        with pytest.raises(RateLimited) as caught:
            await cloud.create_machine(ORDER)
    assert caught.value.retry_after_s == expected_s


@pytest.mark.proves("F8")
async def test_too_many_slows_everything_down_and_does_not_trip_the_breaker():
    clock = FakeClock(auto=True)
    limiter, breaker = RateLimiter(clock, per_minute=300, burst=60), CircuitBreaker(clock, threshold=2)
    answer = saying(refusal(429, "Retry-After: 120"))
    async with (
        raw_server(answer) as server,
        open_transport(server.base_url, clock=clock, limiter=limiter, breaker=breaker) as transport,
    ):
        for _ in range(3):
            with pytest.raises(RateLimited) as caught:
                await transport.read("/products")
            assert caught.value.retry_after_s == pytest.approx(120, abs=1)
        # Told to wait two minutes, the others did not even ask.
        assert len(server.requests) == 1
        assert limiter.rate_per_minute == 150
        assert breaker.state is BreakerState.CLOSED
        # Nor is it a sign of health: a "too many" must not close an open breaker.
        assert breaker.snapshot().calls == 0
        with pytest.raises(RateLimited):
            await transport.change(CREATE, {})
        assert len(server.requests) == 1


async def _reset(_: Request, writer: asyncio.StreamWriter) -> None:
    reset(writer)


@pytest.mark.parametrize(
    "answer",
    [saying(ERROR), saying(http(200, b"<html>")), saying(refusal(408)), saying(http(301, b"")), _reset],
    ids=["5xx", "garbage", "408", "redirect", "reset"],
)
async def test_a_sick_cloud_is_left_alone_after_a_while(answer):
    clock = FakeClock()
    async with raw_server(answer) as server, open_transport(server.base_url, clock=clock) as transport:
        for _ in range(10):
            # A reset is a lost reply; the others come back for the caller to judge.
            with contextlib.suppress(OutcomeUnknown):
                await transport.change("/gpu/instance/stop", {})
        for call in (transport.read("/products"), transport.change("/gpu/instance/stop", {})):
            with pytest.raises(CircuitOpen) as caught:
                await call
            assert caught.value.retry_after_s == 60
        assert len(server.requests) == 10


async def test_a_cloud_that_cannot_be_reached_is_left_alone_after_a_while():
    clock = FakeClock()
    async with open_transport(f"http://127.0.0.1:{await free_port()}", clock=clock) as transport:
        for _ in range(10):
            with pytest.raises(CloudUnavailable):
                await transport.change("/gpu/instance/stop", {})
        with pytest.raises(CircuitOpen):
            await transport.change("/gpu/instance/stop", {})


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 422])
async def test_a_clear_no_is_a_sign_of_health(status):
    clock = FakeClock()
    breaker = CircuitBreaker(clock, threshold=1)
    async with (
        raw_server(saying(refusal(status))) as server,
        open_transport(server.base_url, clock=clock, breaker=breaker) as transport,
    ):
        await transport.change(CREATE, {})
    assert breaker.state is BreakerState.CLOSED
    assert breaker.snapshot().calls == 1


@pytest.mark.proves("F10")
async def test_a_create_never_tests_whether_a_sick_cloud_is_well_again():
    clock = FakeClock()
    breaker = CircuitBreaker(clock, threshold=1)
    async with (
        raw_server(in_turn(ERROR, OK)) as server,
        open_cloud(server.base_url, clock=clock, breaker=breaker) as cloud,
    ):
        with pytest.raises(OutcomeUnknown):
            await cloud.stop_machine("a")
        await clock.advance(60)
        with pytest.raises(CircuitOpen):
            await cloud.create_machine(ORDER)
        assert len(server.requests) == 1
        await cloud.stop_machine("a")
        await cloud.stop_machine("a")
        assert breaker.state is BreakerState.CLOSED
        with pytest.raises(OutcomeUnknown):
            await cloud.create_machine(ORDER)
        assert len(server.requests) == 4


async def test_no_turn_is_spent_on_a_call_that_is_not_made():
    clock = FakeClock()
    limiter = RateLimiter(clock, per_minute=1, burst=1)
    breaker = CircuitBreaker(clock, threshold=1, recovery_s=1)
    breaker.acquire().failure()
    async with (
        raw_server(saying(OK)) as server,
        open_transport(server.base_url, clock=clock, limiter=limiter, breaker=breaker) as transport,
    ):
        for _ in range(5):
            with pytest.raises(CircuitOpen):
                await transport.read("/products")
        await clock.advance(1)
        assert await transport.read("/products")


async def test_changes_go_before_reads():
    clock = FakeClock()
    limiter = RateLimiter(clock, per_minute=60, burst=1)
    async with (
        raw_server(saying(OK)) as server,
        open_transport(server.base_url, clock=clock, limiter=limiter) as transport,
    ):
        await transport.read("/products")
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(transport.read("/products")) for _ in range(2)]
        await clock.settle()
        calls.append(asyncio.create_task(transport.change(CREATE, {})))
        await clock.settle()
        await clock.advance(1)
        await calls[-1]
        assert [request.method for request in server.requests] == ["GET", "POST"]
        await clock.advance(2)
        await asyncio.gather(*calls)


class Standstill(RateLimiter):
    """Everything stands still for so long before each turn, as if the process had been stopped."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__(clock)
        self._fake, self._seconds = clock, seconds

    async def acquire(self, lane: Lane, max_wait_s: float) -> None:
        await super().acquire(lane, max_wait_s)
        await self._fake.advance(self._seconds)


@pytest.mark.proves("F29")
@pytest.mark.parametrize(("stopped_s", "sent"), [(5.5, 1), (6.5, 0)])
async def test_a_change_whose_process_was_stopped_before_it_is_not_sent(stopped_s: float, sent: int):
    clock = FakeClock()
    async with (
        raw_server(saying(OK)) as server,
        open_transport(server.base_url, clock=clock, limiter=Standstill(clock, stopped_s)) as transport,
    ):
        refused = contextlib.nullcontext() if sent else pytest.raises(CloudUnavailable, match="held up")
        with refused:
            await transport.change(CREATE, {})
        assert len(server.requests) == sent


@pytest.mark.parametrize("verb", ["start", "stop", "delete"])
async def test_what_was_decided_too_long_ago_is_not_asked_of_a_machine(verb: str):
    clock = FakeClock()
    async with raw_server(saying(OK)) as server, open_cloud(server.base_url, clock=clock) as cloud:
        ask = getattr(cloud, f"{verb}_machine")
        with pytest.raises(CloudUnavailable, match="held up"):
            await ask("m-1", clock.boottime() - 0.001)
        assert server.requests == []
        await ask("m-1", clock.boottime())
        assert len(server.requests) == 1


async def test_a_machine_that_was_ordered_too_long_ago_is_not_rented():
    clock = FakeClock()
    async with raw_server(saying(OK)) as server, open_cloud(server.base_url, clock=clock) as cloud:
        with pytest.raises(CloudUnavailable, match="held up"):
            await cloud.create_machine(replace(ORDER, send_by_s=clock.boottime() - 0.001))
        assert server.requests == []


async def test_nor_is_one_that_was_ordered_before_the_host_slept():
    clock = FakeClock()
    async with raw_server(saying(OK)) as server, open_cloud(server.base_url, clock=clock) as cloud:
        order = replace(ORDER, send_by_s=clock.boottime() + 5)
        clock.suspend(6)
        with pytest.raises(CloudUnavailable, match="held up"):
            await cloud.create_machine(order)
        assert server.requests == []


async def test_a_change_does_not_wait_long_for_its_turn():
    """Whoever holds a lease while it calls must know the longest that the call can take."""
    clock = FakeClock()
    limiter = RateLimiter(clock, per_minute=6, burst=1)
    async with (
        raw_server(saying(OK)) as server,
        open_transport(server.base_url, clock=clock, limiter=limiter) as transport,
    ):
        await transport.change(CREATE, {})
        with pytest.raises(RateLimited) as caught:
            await transport.change(CREATE, {})
        assert caught.value.retry_after_s == pytest.approx(10)
        assert len(server.requests) == 1


async def test_watching_has_a_budget_of_its_own():
    clock = FakeClock()
    budget = RateLimiter(clock, per_minute=1, burst=2)
    async with (
        raw_server(saying(OK)) as server,
        open_transport(server.base_url, clock=clock, watch_budget=budget) as transport,
    ):
        await transport.read("/gpu/instances", lane=Lane.WATCH)
        await transport.read("/gpu/instances", lane=Lane.WATCH)
        with pytest.raises(RateLimited):
            await transport.read("/gpu/instances", lane=Lane.WATCH)
        await transport.read("/products")
        await transport.change(CREATE, {})
        assert len(server.requests) == 4


ANYTHING = http(200, {"data": [{"id": "a", "name": "A"}], "instances": [], "total": 0, "id": "a"})


async def test_only_the_observer_pays_from_the_watch_budget():
    clock = FakeClock()
    budget = RateLimiter(clock, per_minute=1, burst=1)
    async with (
        raw_server(saying(ANYTHING)) as server,
        open_cloud(server.base_url, clock=clock, watch_budget=budget) as cloud,
    ):
        observer = cloud.in_lane(Lane.WATCH)
        await observer.list_machines()
        for watching in (observer.list_machines(), observer.get_machine("a")):
            with pytest.raises(RateLimited):
                await watching
        for _ in range(100):
            await cloud.get_machine("a")
        await cloud.in_lane(Lane.BROWSE).list_machines()
        await cloud.list_regions()


async def test_a_page_of_the_observer_goes_before_everything_that_people_ask():
    clock = FakeClock()
    limiter = RateLimiter(clock, per_minute=300, burst=60)
    async with (
        raw_server(saying(ANYTHING)) as server,
        open_cloud(server.base_url, clock=clock, limiter=limiter) as cloud,
    ):
        people, observer = cloud.in_lane(Lane.BROWSE), cloud.in_lane(Lane.WATCH)
        asked = [asyncio.create_task(people.get_template(f"{n}")) for n in range(200)]
        while len(server.requests) < 60:
            await asyncio.sleep(0)
        assert limiter.waiting == 140
        page = asyncio.create_task(observer.list_machines())
        await clock.advance(0.2)
        await page
        assert limiter.waiting == 140
        for it in asked:
            it.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_every_try_is_observed_once_without_anything_secret():
    records: list[CallRecord] = []
    answer = in_turn(ERROR, refusal(429), OK, refusal(400), http(200, b"<html>"))
    async with (
        raw_server(answer) as server,
        open_transport(server.base_url, observe=records.append) as transport,
    ):
        await transport.read("/products", {"secret": "x"})
        await transport.change(CREATE, {"secret": "x"})
        await transport.change(CREATE, {"secret": "x"})
    assert [(record.endpoint, record.outcome, record.status) for record in records] == [
        ("/products", "server_error", 500),
        ("/products", "throttled", 429),
        ("/products", "ok", 200),
        (CREATE, "refused", 400),
        (CREATE, "garbage", 200),
    ]
    assert "secret" not in str(records)


async def test_what_was_never_answered_is_observed_too():
    records: list[CallRecord] = []
    clock = FakeClock()
    breaker, limiter = CircuitBreaker(clock), RateLimiter(clock, per_minute=1, burst=1)
    settings = {"clock": clock, "breaker": breaker, "limiter": limiter, "observe": records.append}
    async with raw_server(_reset) as server, open_transport(server.base_url, **settings) as transport:
        with pytest.raises(OutcomeUnknown):
            await transport.change(CREATE, {})
        with pytest.raises(RateLimited):
            await transport.change(CREATE, {})
        while breaker.state is BreakerState.CLOSED:
            breaker.acquire().failure()
        with pytest.raises(CircuitOpen):
            await transport.change(CREATE, {})
    assert [record.outcome for record in records] == ["lost", "limited", "circuit_open"]
    assert records[1].duration_s == 0


async def test_a_faulty_observer_does_not_lose_the_id_of_a_machine():
    def observe(_: CallRecord) -> None:
        raise RuntimeError("no disk for logs")

    answer = saying(http(200, {"id": "5f0c9b1d2e3a4f60"}))
    async with raw_server(answer) as server, open_cloud(server.base_url, observe=observe) as cloud:
        assert await cloud.create_machine(ORDER) == "5f0c9b1d2e3a4f60"


async def test_a_cancelled_change_was_sent_once_and_says_nothing_about_the_cloud():
    arrived = asyncio.Event()

    async def answer(_: Request, __: asyncio.StreamWriter) -> None:
        arrived.set()
        await asyncio.sleep(3600)

    records: list[CallRecord] = []
    clock = FakeClock()
    breaker = CircuitBreaker(clock, threshold=1)
    settings = {"clock": clock, "breaker": breaker, "observe": records.append}
    async with raw_server(answer) as server, open_transport(server.base_url, **settings) as transport:
        call = asyncio.create_task(transport.change(CREATE, {}))
        await arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(server.requests) == 1
    assert [record.outcome for record in records] == ["cancelled"]
    assert breaker.snapshot().calls == 0


async def test_a_refused_key_is_told_apart():
    answer = saying(http(401, {"code": 401, "reason": "UNAUTHORIZED", "message": "who?"}))
    async with raw_server(answer) as server, open_transport(server.base_url) as transport:
        with pytest.raises(KeyRefused):
            await transport.read("/products")
