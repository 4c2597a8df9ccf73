"""Rounds over a machine whose endpoints do as the test says, on a clock that costs no time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.health import (
    EndpointHealth,
    EndpointStatus,
    Health,
    HealthCategory,
    HealthCheck,
    HealthStatus,
    begin_check,
    explain_health,
)
from gpuherd.ports.egress_port import Prober
from gpuherd.usecases.reconcile.check_health import ROUND_MAX_S, check_health
from gpuherd.usecases.reconcile.clock_steps import ClockAdjustments
from gpuherd.usecases.services import Services
from tests.support.fake_clock import START, FakeClock

WEB = PortMapping(8080, "https://web.example.com", "http")
JUPYTER = PortMapping(8888, "https://jupyter.example.com", "http")
SSH = PortMapping(22, "proxy.example.com:32787", "tcp")
CHECK = HealthCheck()
REFUSED, OK = HealthCategory.CONNECTION_REFUSED, HealthCategory.OK
# What an endpoint answers, by the seconds since the start.
Behaviour = Callable[[float], HealthCategory]


def up_after(seconds: float, before: HealthCategory = REFUSED) -> Behaviour:
    return lambda now_s: OK if now_s >= seconds else before


class ScriptedProber:
    """Implements `Prober` from a script, notes every look, and takes as long as it is told."""

    def __init__(self, clock: FakeClock, script: dict[int, Behaviour], takes_s: float = 0.0):
        self._clock = clock
        self._script = script
        self._takes_s = takes_s
        self.looks: list[tuple[int, float]] = []
        self.timeouts_ms: list[int] = []
        self.inside = self.most = 0

    async def probe(self, port: PortMapping, check: HealthCheck) -> EndpointHealth:
        self.looks.append((port.port, self._now_s()))
        self.timeouts_ms.append(check.timeout_ms)
        self.inside += 1
        self.most = max(self.most, self.inside)
        late = self._takes_s >= check.timeout_s
        await self._clock.sleep(min(self._takes_s, check.timeout_s))
        self.inside -= 1
        category = HealthCategory.TIMEOUT if late else self._script[port.port](self._now_s())
        return EndpointHealth.seen(port, category, "a reason", self._clock.now(), self._takes_s)

    def at(self, port: int) -> list[float]:
        return [at_s for number, at_s in self.looks if number == port]

    def _now_s(self) -> float:
        return (self._clock.now() - START).total_seconds()


Checker = Callable[
    [HealthCheck, Health | None, tuple[PortMapping, ...]], Coroutine[Any, Any, tuple[Health, float | None]]
]


def checker_of(prober: Prober, clock: FakeClock, seed: int = 7) -> Checker:
    parts = SimpleNamespace(
        prober=prober, clock=clock, rng=random.Random(seed), clock_adjustments=ClockAdjustments(clock)
    )
    return partial(check_health, cast(Services, parts))


def a_checker(
    script: dict[int, Behaviour], takes_s: float = 0.0
) -> tuple[Checker, ScriptedProber, FakeClock]:
    clock = FakeClock(auto=True)
    prober = ScriptedProber(clock, script, takes_s)
    return checker_of(prober, clock), prober, clock


async def test_a_machine_that_answers_passes_in_one_round() -> None:
    checker, prober, _ = a_checker({8080: up_after(0), 8888: up_after(0)})
    health, wait_s = await checker(CHECK, None, (SSH, WEB, JUPYTER))
    assert (health.status, health.rounds, wait_s) == (HealthStatus.PASSED, 1, None)
    assert (health.started_at, health.completed_at) == (START, START)
    assert [(it.port, it.status) for it in health.endpoints] == [(8080, "healthy"), (8888, "healthy")]
    assert sorted(prober.looks) == [(8080, 0), (8888, 0)]


async def test_endpoints_are_looked_at_side_by_side() -> None:
    checker, prober, clock = a_checker({8080: up_after(0), 8888: up_after(0)}, takes_s=5)
    await checker(CHECK, None, (WEB, JUPYTER))
    assert prober.most == 2
    assert clock.now() == START + timedelta(seconds=5)


async def test_only_the_target_port_is_looked_at() -> None:
    checker, prober, _ = a_checker({22: up_after(0)})
    health, _ = await checker(replace(CHECK, target_port=22), None, (SSH, WEB, JUPYTER))
    assert health.status is HealthStatus.PASSED
    assert prober.looks == [(22, 0)]


async def test_quick_retries_ask_only_who_was_unhealthy() -> None:
    checker, prober, _ = a_checker({8080: up_after(0), 8888: up_after(1.5)})
    health, wait_s = await checker(CHECK, None, (WEB, JUPYTER))
    assert (health.status, wait_s) == (HealthStatus.PASSED, None)
    assert len(prober.at(8080)) == 1
    assert len(prober.at(8888)) >= 2


@pytest.mark.parametrize("retries", [0, 1, 3, 10])
async def test_a_round_has_as_many_quick_retries_as_were_ordered(retries: int) -> None:
    checker, prober, _ = a_checker({8080: up_after(9999)})
    check = replace(CHECK, retry_attempts=retries, retry_delay_ms=50, timeout_ms=100)
    health, wait_s = await checker(check, None, (WEB,))
    assert (health.status, health.rounds) == (HealthStatus.IN_PROGRESS, 1)
    assert 0.025 <= (wait_s or 0) <= 0.05
    looks = prober.at(8080)
    if retries < 10:
        assert len(looks) == retries + 1
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    assert all(0.025 * 2**n <= gap <= 0.05 * 2**n + 1e-6 for n, gap in enumerate(gaps))


async def test_a_blocked_target_fails_at_once_and_is_not_asked_again() -> None:
    checker, prober, _ = a_checker({8080: lambda _: HealthCategory.BLOCKED_TARGET, 8888: up_after(0)})
    health, wait_s = await checker(CHECK, None, (WEB, JUPYTER))
    assert (health.status, health.completed_at, wait_s) == (HealthStatus.FAILED, START, None)
    assert prober.at(8080) == [0]


async def test_a_round_does_not_outlast_its_bound() -> None:
    for timeout_ms in (100, 10_000, 35_000, 60_000):
        checker, prober, clock = a_checker({8080: up_after(9999)}, takes_s=9999)
        check = replace(CHECK, retry_attempts=10, timeout_ms=timeout_ms, retry_delay_ms=5_000)
        _, wait_s = await checker(check, None, (WEB,))
        assert wait_s is not None
        assert prober.looks
        assert clock.now() - START <= timedelta(seconds=max(ROUND_MAX_S, timeout_ms / 1000))


async def run_to_the_end(
    checker: Checker, clock: FakeClock, check: HealthCheck, ports: tuple[PortMapping, ...]
) -> Health:
    """Do as the worker does: a round, a wait, and everything stored in between."""
    health: Health | None = None
    while True:
        health, wait_s = await checker(check, health and Health.from_doc(health.as_doc()), ports)
        if wait_s is None:
            return health
        assert health.status is HealthStatus.IN_PROGRESS
        await clock.sleep(wait_s)


@pytest.mark.parametrize("up_s", [0, 1, 14, 60, 200, 285, 299])
async def test_a_program_that_comes_up_in_time_passes(up_s: float) -> None:
    checker, _, clock = a_checker({8080: up_after(up_s, HealthCategory.BAD_GATEWAY)})
    health = await run_to_the_end(checker, clock, CHECK, (WEB,))
    assert health.status is HealthStatus.PASSED
    assert health.completed_at is not None
    assert up_s <= (health.completed_at - START).total_seconds() <= up_s + 30


async def test_a_program_that_never_comes_up_fails_when_the_time_is_over() -> None:
    checker, prober, clock = a_checker({8080: up_after(9999), 8888: up_after(0)})
    health = await run_to_the_end(checker, clock, CHECK, (WEB, JUPYTER))
    assert (health.status, health.started_at) == (HealthStatus.FAILED, START)
    assert health.completed_at is not None
    assert 299 <= (health.completed_at - START).total_seconds() <= 301
    assert [(it.status, it.category) for it in health.endpoints] == [
        (EndpointStatus.UNHEALTHY, REFUSED),
        (EndpointStatus.HEALTHY, OK),
    ]
    # Many rounds later there is still one entry for each endpoint.
    assert health.rounds > 5
    assert len(prober.looks) < 100


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32),
    st.integers(100, 60_000),
    st.integers(0, 10),
    st.integers(50, 30_000),
    st.integers(1_000, 400_000),
    st.floats(0, 100),
    st.floats(0, 400),
)
async def test_every_check_ends_in_time_and_never_hurries(
    seed: int, timeout_ms: int, retries: int, delay_ms: int, max_ms: int, takes_s: float, up_s: float
) -> None:
    clock = FakeClock(auto=True)
    prober = ScriptedProber(clock, {8080: up_after(up_s)}, takes_s)
    check = HealthCheck(None, "/", timeout_ms, retries, delay_ms, max_ms)
    health = await run_to_the_end(checker_of(prober, clock, seed), clock, check, (WEB,))
    lasted_s = (clock.now() - START).total_seconds()
    assert health.ended
    assert lasted_s <= max_ms / 1000 + 1.1
    if up_s == 0 and takes_s < min(timeout_ms, max_ms) / 1000:
        assert health.status is HealthStatus.PASSED
    if up_s > lasted_s:
        assert health.status is HealthStatus.FAILED
    looks = prober.at(8080)
    last = max_ms / 1000 - 0.06
    gaps = [later - earlier for earlier, later in pairwise(looks) if later < last]
    assert all(gap >= delay_ms / 2000 - 1e-5 for gap in gaps)


async def test_a_hung_program_cannot_stretch_the_time() -> None:
    checker, prober, clock = a_checker({8080: up_after(0)}, takes_s=9999)
    check = replace(CHECK, timeout_ms=60_000, max_wait_ms=5_000)
    health = await run_to_the_end(checker, clock, check, (WEB,))
    assert health.status is HealthStatus.FAILED
    assert health.endpoints[0].category is HealthCategory.TIMEOUT
    assert prober.timeouts_ms[0] == 5_000
    assert clock.now() <= START + timedelta(seconds=6)


async def test_other_addresses_are_looked_at_from_the_next_round_on() -> None:
    checker, prober, _ = a_checker({8080: up_after(9999), 9090: up_after(0)})
    health, wait_s = await checker(replace(CHECK, retry_attempts=0), None, (WEB,))
    assert wait_s is not None
    moved = replace(WEB, port=9090, endpoint="https://moved.example.com")
    health, wait_s = await checker(CHECK, health, (moved,))
    assert (health.status, health.rounds, wait_s) == (HealthStatus.PASSED, 2, None)
    assert [it.endpoint for it in health.endpoints] == ["https://moved.example.com"]
    assert [port for port, _ in prober.looks] == [8080, 9090]


async def test_a_missing_target_port_is_told_and_may_still_appear() -> None:
    checker, prober, clock = a_checker({8080: up_after(0)})
    check = replace(CHECK, target_port=8080)
    health, wait_s = await checker(check, None, (SSH,))
    assert health.status is HealthStatus.IN_PROGRESS and wait_s is not None
    assert [(it.port, it.category) for it in health.endpoints] == [(8080, "no_such_port")]
    assert "no port 8080" in explain_health(health)
    assert prober.looks == []
    assert (await checker(check, health, (SSH, WEB)))[0].status is HealthStatus.PASSED
    failed = await run_to_the_end(checker, clock, check, (SSH,))
    assert (failed.status, failed.endpoints[0].category) == (HealthStatus.FAILED, "no_such_port")


async def test_no_port_at_all_is_no_success() -> None:
    checker, prober, clock = a_checker({})
    health = await run_to_the_end(checker, clock, CHECK, ())
    assert (health.status, health.endpoints, prober.looks) == (HealthStatus.FAILED, (), [])


@pytest.mark.parametrize("status", [HealthStatus.PASSED, HealthStatus.FAILED])
async def test_a_check_that_has_ended_is_not_run_again(status: HealthStatus) -> None:
    checker, prober, _ = a_checker({8080: up_after(0)})
    ended = Health(status, START, START, (), 3)
    assert await checker(CHECK, ended, (WEB,)) == (ended, None)
    assert prober.looks == []


async def test_a_pending_check_begins_now_and_a_begun_one_keeps_its_start() -> None:
    checker, _, clock = a_checker({8080: up_after(0)})
    await clock.sleep(10)
    health, _ = await checker(CHECK, Health(), (WEB,))
    assert health.started_at == START + timedelta(seconds=10)
    health, _ = await checker(CHECK, begin_check(CHECK, (WEB,), START), (WEB,))
    assert health.started_at == START


async def test_a_wall_clock_that_steps_back_does_not_hurt() -> None:
    checker, _, clock = a_checker({8080: up_after(9999)})
    health, _ = await checker(CHECK, None, (WEB,))
    clock.jump_wall(-86_400)
    health, wait_s = await checker(CHECK, health, (WEB,))
    assert health.status is HealthStatus.IN_PROGRESS
    assert wait_s is not None and wait_s <= 30


async def test_a_cancelled_round_leaves_no_look_behind() -> None:
    clock = FakeClock()
    prober = ScriptedProber(clock, {8080: up_after(0), 8888: up_after(0)}, takes_s=5)
    checker = checker_of(prober, clock)
    task = asyncio.create_task(checker(CHECK, None, (WEB, JUPYTER)))
    await clock.advance(1)
    assert clock.sleepers == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0


class BusyProber:
    """Implements `Prober` where too many looks are under way."""

    async def probe(self, port: PortMapping, check: HealthCheck) -> EndpointHealth:
        return EndpointHealth.not_asked(port)


async def test_who_could_not_be_asked_is_not_given_up_when_the_time_is_over() -> None:
    clock = FakeClock(auto=True)
    checker = checker_of(BusyProber(), clock)
    health = begin_check(CHECK, (WEB,), clock.now())
    await clock.advance(CHECK.max_wait_ms / 1000 + 1)
    health, wait_s = await checker(CHECK, health, (WEB,))
    assert (health.status, explain_health(health)) == (
        HealthStatus.IN_PROGRESS,
        "the health check has not looked yet",
    )
    assert wait_s
