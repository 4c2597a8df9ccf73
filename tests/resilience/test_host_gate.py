"""A gate before strangers' hosts: how many may be inside, and when a host is left alone."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.resilience.per_host_limit import LINE_MAX, LINE_WAIT_S, HostGate
from tests.support.fake_clock import FakeClock

HOST = "hook.example.com"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def gate(clock: FakeClock) -> HostGate:
    return HostGate(clock)


def visit(gate: HostGate, *, succeeded: bool | None, seconds: float = 0.1) -> None:
    assert gate.try_acquire(HOST) == 0
    gate.release(HOST, succeeded=succeeded, seconds=seconds)


async def eject(gate: HostGate, clock: FakeClock) -> float:
    """Fail until the host is closed, let that time pass, and return how long it was."""
    for _ in range(5):
        visit(gate, succeeded=False)
    ejected_s = gate.ejected_s(HOST)
    await clock.advance(ejected_s)
    return ejected_s


def test_two_are_inside_at_once_and_a_third_hears_when_to_come_back(gate: HostGate) -> None:
    assert gate.try_acquire(HOST) == gate.try_acquire(HOST) == 0
    assert 0 < gate.try_acquire(HOST) <= 0.1
    assert gate.try_acquire("other.example.com") == 0
    gate.release(HOST, succeeded=True, seconds=0.1)
    assert gate.try_acquire(HOST) == 0


def test_those_who_wait_are_spread_as_visits_are_long(gate: HostGate) -> None:
    for _ in range(10):
        visit(gate, succeeded=True, seconds=9.0)
    gate.try_acquire(HOST), gate.try_acquire(HOST)
    first, second, third = (gate.try_acquire(HOST) for _ in range(3))
    assert 3 < first < second < third
    waits = [gate.try_acquire(HOST) for _ in range(1000)]
    assert max(waits) <= 30


async def test_a_seat_that_is_free_in_a_moment_is_waited_for_first_come_first_served(
    gate: HostGate, clock: FakeClock
) -> None:
    gate.try_acquire(HOST), gate.try_acquire(HOST)
    first, second = (asyncio.create_task(gate.acquire(HOST)) for _ in range(2))
    await clock.advance(0.01)
    assert not first.done() and not second.done()
    gate.release(HOST, succeeded=True, seconds=0.01)
    await clock.settle()
    assert await first == 0 and not second.done()
    gate.release(HOST, succeeded=True, seconds=0.01)
    assert await second == 0
    assert gate.try_acquire(HOST) > 0


async def test_nobody_waits_in_line_for_longer_than_a_moment(gate: HostGate, clock: FakeClock) -> None:
    gate.try_acquire(HOST), gate.try_acquire(HOST)
    waiting = asyncio.create_task(gate.acquire(HOST))
    await clock.advance(LINE_WAIT_S)
    assert waiting.done() and await waiting > 0
    # The seat that falls free now is nobody's.
    gate.release(HOST, succeeded=True, seconds=LINE_WAIT_S)
    assert gate.try_acquire(HOST) == 0
    assert clock.sleepers == 0


async def test_a_line_is_short_and_there_is_none_before_a_slow_host(gate: HostGate, clock: FakeClock) -> None:
    gate.try_acquire(HOST), gate.try_acquire(HOST)
    in_line = [asyncio.create_task(gate.acquire(HOST)) for _ in range(LINE_MAX + 3)]
    await clock.settle()
    assert [it.done() for it in in_line] == [False] * LINE_MAX + [True] * 3
    await clock.advance(1)
    assert all(it.done() for it in in_line)
    too_slow = asyncio.create_task(gate.acquire(HOST))
    await clock.settle()
    assert too_slow.done() and await too_slow > LINE_WAIT_S


async def test_who_waits_in_line_hears_at_once_that_the_host_was_closed(
    gate: HostGate, clock: FakeClock
) -> None:
    for _ in range(4):
        visit(gate, succeeded=False, seconds=0.01)
    gate.try_acquire(HOST), gate.try_acquire(HOST)
    waiting = asyncio.create_task(gate.acquire(HOST))
    await clock.settle()
    gate.release(HOST, succeeded=False, seconds=0.01)
    assert await waiting == 30


@pytest.mark.parametrize("has_seat", [False, True])
async def test_who_is_cancelled_in_line_keeps_no_seat(
    gate: HostGate, clock: FakeClock, has_seat: bool
) -> None:
    gate.try_acquire(HOST), gate.try_acquire(HOST)
    cancelled, behind = (asyncio.create_task(gate.acquire(HOST)) for _ in range(2))
    await clock.settle()
    if has_seat:
        # Given to the first, who is cancelled before it can know.
        gate.release(HOST, succeeded=True, seconds=0.01)
    cancelled.cancel()
    await clock.settle()
    if not has_seat:
        gate.release(HOST, succeeded=True, seconds=0.01)
    assert cancelled.cancelled() and await behind == 0
    assert gate.try_acquire(HOST) > 0


def test_five_failures_in_a_row_close_a_host(gate: HostGate) -> None:
    for _ in range(4):
        visit(gate, succeeded=False)
    assert gate.ejected_s(HOST) == 0
    visit(gate, succeeded=False)
    assert gate.ejected_s(HOST) == gate.try_acquire(HOST) == 30
    assert gate.try_acquire("other.example.com") == 0


def test_a_success_between_them_begins_the_count_anew(gate: HostGate) -> None:
    for succeeded in (False, False, False, False, True, False, False, False, False):
        visit(gate, succeeded=succeeded)
    assert gate.ejected_s(HOST) == 0


def test_a_visit_that_says_nothing_is_no_failure_and_no_success(gate: HostGate) -> None:
    for succeeded in (False, False, False, False, None, False):
        visit(gate, succeeded=succeeded)
    assert gate.ejected_s(HOST) == 30


async def test_each_time_it_is_closed_for_twice_as_long_up_to_an_hour(
    gate: HostGate, clock: FakeClock
) -> None:
    waits = [await eject(gate, clock) for _ in range(10)]
    assert waits == pytest.approx([30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600])
    visit(gate, succeeded=True)
    assert await eject(gate, clock) == pytest.approx(30)


async def test_after_an_ejection_visitors_come_one_by_one_until_one_fares_well(
    gate: HostGate, clock: FakeClock
) -> None:
    await eject(gate, clock)
    assert gate.try_acquire(HOST) == 0
    assert gate.try_acquire(HOST) > 0
    gate.release(HOST, succeeded=True, seconds=0.1)
    assert gate.try_acquire(HOST) == gate.try_acquire(HOST) == 0


async def test_those_inside_when_it_is_closed_do_not_close_it_for_longer(
    gate: HostGate, clock: FakeClock
) -> None:
    for _ in range(4):
        visit(gate, succeeded=False)
    gate.try_acquire(HOST), gate.try_acquire(HOST)
    gate.release(HOST, succeeded=False, seconds=0.1)
    gate.release(HOST, succeeded=False, seconds=0.1)
    assert gate.ejected_s(HOST) == 30
    await clock.advance(30)
    visit(gate, succeeded=False)
    assert gate.ejected_s(HOST) == 0


def test_hosts_are_forgotten_when_there_are_too_many(clock: FakeClock) -> None:
    gate = HostGate(clock, max_hosts=10)
    gate.try_acquire("busy")
    for n in range(100):
        gate.try_acquire(f"host-{n}")
        gate.release(f"host-{n}", succeeded=True, seconds=1.0)
    assert len(gate) <= 11
    gate.release("busy", succeeded=True, seconds=1.0)


@given(st.lists(st.sampled_from(["enter", "leave well", "leave ill"]), max_size=60))
def test_never_more_than_two_inside(steps: list[str]) -> None:
    gate, inside = HostGate(FakeClock()), 0
    for step in steps:
        if step == "enter":
            inside += gate.try_acquire(HOST) == 0
        elif inside:
            gate.release(HOST, succeeded=step == "leave well", seconds=0.0)
            inside -= 1
        assert inside <= 2


@pytest.mark.parametrize("wrong", [{"per_host": 0}, {"failures": 0}, {"max_hosts": 0}])
def test_a_gate_without_seats_makes_no_sense(clock: FakeClock, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        HostGate(clock, **wrong)
