"""When the breaker opens, whom it lets through, and how it closes again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.resilience.circuit_breaker import BreakerOpen, BreakerState, CircuitBreaker, Permit
from tests.support.fake_clock import START, FakeClock

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.acquire().failure()


def succeed(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.acquire().success()


def retry_after_of_a_refusal(breaker: CircuitBreaker, *, probe_allowed: bool = True) -> float:
    with pytest.raises(BreakerOpen) as refusal:
        breaker.acquire(probe_allowed)
    return refusal.value.retry_after_s


async def half_open(breaker: CircuitBreaker, clock: FakeClock) -> None:
    fail(breaker, 10)
    await clock.advance(60)
    assert breaker.state is HALF_OPEN


async def test_it_opens_on_the_tenth_failure_within_a_minute(breaker: CircuitBreaker) -> None:
    fail(breaker, 9)
    assert breaker.state is CLOSED
    fail(breaker)
    assert breaker.state is OPEN
    assert retry_after_of_a_refusal(breaker) == 60


async def test_failures_that_are_spread_out_do_not_open_it(breaker: CircuitBreaker, clock: FakeClock) -> None:
    for _ in range(100):
        fail(breaker)
        await clock.advance(60 / 9)
    assert breaker.state is CLOSED


async def test_a_failure_leaves_the_window_exactly_after_it(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    fail(breaker, 5)
    await clock.advance(59.999)
    assert breaker.snapshot().failures == 5
    await clock.advance(0.001)
    assert breaker.snapshot().failures == 0
    fail(breaker, 5)
    assert breaker.state is CLOSED


async def test_it_stays_closed_while_most_calls_succeed(breaker: CircuitBreaker) -> None:
    succeed(breaker, 21)
    fail(breaker, 20)
    assert breaker.state is CLOSED
    fail(breaker)
    assert breaker.state is OPEN


async def test_a_success_never_opens_it(breaker: CircuitBreaker, clock: FakeClock) -> None:
    succeed(breaker, 21)
    await clock.advance(50)
    fail(breaker, 20)
    await clock.advance(10)  # the successes are forgotten, the failures are not yet
    succeed(breaker)
    assert breaker.state is CLOSED
    fail(breaker)
    assert breaker.state is OPEN


async def test_neutral_calls_count_neither_way(breaker: CircuitBreaker) -> None:
    fail(breaker, 9)
    for _ in range(100):
        breaker.acquire().neutral()
    assert breaker.snapshot().calls == 9
    fail(breaker)
    assert breaker.state is OPEN


async def test_it_refuses_with_the_time_that_is_left(breaker: CircuitBreaker, clock: FakeClock) -> None:
    fail(breaker, 10)
    await clock.advance(45)
    assert breaker.retry_after_s() == pytest.approx(15)
    assert retry_after_of_a_refusal(breaker) == pytest.approx(15)
    await clock.advance(14.9)
    assert breaker.state is OPEN
    await clock.advance(0.1)
    assert breaker.state is HALF_OPEN
    assert breaker.retry_after_s() == 0


async def test_half_open_lets_two_probes_through_and_no_third(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    await half_open(breaker, clock)
    first, _second = breaker.acquire(), breaker.acquire()
    assert breaker.retry_after_s() > 0
    assert retry_after_of_a_refusal(breaker) > 0
    first.success()
    breaker.acquire()
    assert retry_after_of_a_refusal(breaker) > 0


async def test_two_successful_probes_close_it_and_clear_the_window(clock: FakeClock) -> None:
    breaker = CircuitBreaker(clock, window_s=1_000)
    await half_open(breaker, clock)
    succeed(breaker)
    assert breaker.state is HALF_OPEN
    succeed(breaker)
    assert breaker.state is CLOSED
    assert breaker.snapshot().failures == 0
    fail(breaker, 9)
    assert breaker.state is CLOSED


async def test_one_failed_probe_opens_it_again(breaker: CircuitBreaker, clock: FakeClock) -> None:
    await half_open(breaker, clock)
    succeed(breaker)
    fail(breaker)
    assert breaker.state is OPEN


async def test_successes_of_an_earlier_recovery_do_not_count(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    await half_open(breaker, clock)
    succeed(breaker)
    fail(breaker)
    await clock.advance(120)
    succeed(breaker)
    assert breaker.state is HALF_OPEN


async def test_each_failed_recovery_doubles_the_pause_up_to_four_times(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    fail(breaker, 10)
    for pause_s in (60, 120, 240, 240, 240):
        assert breaker.retry_after_s() == pytest.approx(pause_s)
        await clock.advance(pause_s)
        fail(breaker)
    await clock.advance(240)
    succeed(breaker, 2)
    fail(breaker, 10)
    assert breaker.retry_after_s() == pytest.approx(60)


async def test_a_create_is_never_the_probe(breaker: CircuitBreaker, clock: FakeClock) -> None:
    await half_open(breaker, clock)
    assert retry_after_of_a_refusal(breaker, probe_allowed=False) > 0
    succeed(breaker)
    assert retry_after_of_a_refusal(breaker, probe_allowed=False) > 0
    succeed(breaker)
    breaker.acquire(probe_allowed=False).success()
    assert breaker.state is CLOSED


async def test_a_neutral_probe_gives_its_permit_back(breaker: CircuitBreaker, clock: FakeClock) -> None:
    await half_open(breaker, clock)
    for _ in range(5):
        for permit in [breaker.acquire(), breaker.acquire()]:
            permit.neutral()
    assert breaker.state is HALF_OPEN
    succeed(breaker, 2)
    assert breaker.state is CLOSED


async def test_a_cancelled_probe_gives_its_permit_back(breaker: CircuitBreaker, clock: FakeClock) -> None:
    await half_open(breaker, clock)

    async def probe() -> None:
        with breaker.acquire():
            await clock.sleep(1_000)

    probes = [asyncio.create_task(probe()) for _ in range(2)]
    await clock.settle()
    retry_after_of_a_refusal(breaker)
    for task in probes:
        task.cancel()
    await clock.settle()
    succeed(breaker, 2)
    assert breaker.state is CLOSED


async def test_a_permit_judges_by_how_its_block_was_left(breaker: CircuitBreaker) -> None:
    with breaker.acquire():
        pass
    with pytest.raises(ConnectionError), breaker.acquire():
        raise ConnectionError
    with pytest.raises(asyncio.CancelledError), breaker.acquire():
        raise asyncio.CancelledError
    assert (breaker.snapshot().calls, breaker.snapshot().failures) == (2, 1)


async def test_an_explicit_verdict_stands_whatever_happens_after_it(breaker: CircuitBreaker) -> None:
    with pytest.raises(LookupError), breaker.acquire() as permit:
        permit.success()  # "not found" is a healthy answer
        raise LookupError
    permit.failure()
    assert (breaker.snapshot().calls, breaker.snapshot().failures) == (1, 0)


async def test_a_permit_is_given_back_only_once(breaker: CircuitBreaker, clock: FakeClock) -> None:
    await half_open(breaker, clock)
    first, _second = breaker.acquire(), breaker.acquire()
    first.neutral()
    first.neutral()
    breaker.acquire()
    assert retry_after_of_a_refusal(breaker) > 0


async def test_late_verdicts_from_before_the_outage_change_nothing(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    stragglers = [breaker.acquire() for _ in range(20)]
    await half_open(breaker, clock)
    for straggler in stragglers[:10]:
        straggler.success()
    assert breaker.state is HALF_OPEN
    stragglers[10].failure()
    assert breaker.state is HALF_OPEN
    succeed(breaker, 2)
    for straggler in stragglers[11:]:
        straggler.failure()
    assert breaker.snapshot().calls == 0


async def test_a_probe_that_outlives_its_recovery_still_counts_as_under_way(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    await half_open(breaker, clock)
    hanging = breaker.acquire()
    fail(breaker)
    await clock.advance(120)
    breaker.acquire()
    retry_after_of_a_refusal(breaker)
    hanging.success()
    assert breaker.state is HALF_OPEN
    breaker.acquire()


async def test_the_snapshot_tells_since_when_it_has_not_been_closed(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    assert breaker.snapshot().opened_at is None
    await clock.advance(5)
    fail(breaker, 10)
    snapshot = breaker.snapshot()
    assert (snapshot.state, snapshot.failures, snapshot.calls) == (OPEN, 10, 10)
    assert snapshot.opened_at == START + timedelta(seconds=5)
    await clock.advance(60)
    fail(breaker)
    assert breaker.snapshot().opened_at == datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    await clock.advance(120)
    assert breaker.snapshot().state is HALF_OPEN
    succeed(breaker, 2)
    assert breaker.snapshot().opened_at is None


async def test_a_jump_of_the_wall_clock_does_not_end_the_pause(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    fail(breaker, 10)
    clock.jump_wall(3600)
    assert breaker.state is OPEN
    clock.jump_wall(-7200)
    await clock.advance(60)
    assert breaker.state is HALF_OPEN


@pytest.mark.parametrize("wrong", [{"threshold": 0}, {"half_open_permits": 0}])
async def test_limits_that_make_no_sense_are_refused(clock: FakeClock, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        CircuitBreaker(clock, **wrong)


async def test_of_five_hundred_callers_at_once_two_probe() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker(clock)
    await half_open(breaker, clock)
    under_way = most = refused = 0

    async def call() -> None:
        nonlocal under_way, most, refused
        try:
            with breaker.acquire():
                under_way += 1
                most = max(most, under_way)
                await clock.sleep(1)
                under_way -= 1
        except BreakerOpen:
            refused += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(500):
            group.create_task(call())
        await clock.advance(1)
    assert (most, refused, breaker.state) == (2, 498, CLOSED)


CALL = st.tuples(st.just("call"), st.booleans())
VERDICT = st.tuples(st.sampled_from(["success", "failure", "neutral"]), st.integers(min_value=0))
PAUSE = st.tuples(st.just("pause"), st.floats(min_value=0, max_value=50))


class Model:
    """The rule in its plainest form: every verdict since the breaker closed, kept for ever."""

    def __init__(self) -> None:
        self.verdicts: list[tuple[float, bool]] = []

    def must_open(self, now: float) -> bool:
        recent = [ok for at, ok in self.verdicts if at > now - 20]
        failures = recent.count(False)
        return failures >= 3 and failures * 2 >= len(recent)


@settings(deadline=None)
@given(st.lists(CALL | VERDICT | PAUSE, max_size=80))
def test_whatever_happens_the_rules_hold(steps: list[tuple[str, float]]) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        breaker = CircuitBreaker(clock, threshold=3, window_s=20, recovery_s=10)
        model = Model()
        era = 0
        under_way: list[tuple[Permit, BreakerState, int]] = []
        state = breaker.state
        for kind, detail in steps:
            if kind == "pause":
                await clock.advance(detail)
            elif kind == "call":
                try:
                    under_way.append((breaker.acquire(bool(detail)), state, era))
                    assert state is CLOSED or (state is HALF_OPEN and detail)
                except BreakerOpen as refusal:
                    assert state is not CLOSED
                    assert refusal.retry_after_s > 0
            elif under_way:
                permit, admitted_in, admitted_era = under_way.pop(int(detail) % len(under_way))
                getattr(permit, kind)()
                counts = kind != "neutral" and admitted_era == era and admitted_in is CLOSED
                if counts:
                    model.verdicts.append((clock.monotonic(), kind == "success"))
                if admitted_in is CLOSED:
                    opens = counts and kind == "failure" and model.must_open(clock.monotonic())
                    assert breaker.state is (OPEN if opens else state)
            if breaker.state is not state:
                era += 1
                state = breaker.state
                if state is CLOSED:
                    model.verdicts.clear()
            assert sum(admitted_in is HALF_OPEN for _, admitted_in, _ in under_way) <= 2
            snapshot = breaker.snapshot()
            assert 0 <= snapshot.failures <= snapshot.calls
            assert (snapshot.opened_at is None) == (state is CLOSED)

    asyncio.run(scenario())
