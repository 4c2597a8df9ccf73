"""One breaker for all replicas: what one finds out, all adopt; one probes; nobody keeps it open by dying."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuherd.resilience.circuit_breaker import (
    PROBING_RETRY_AFTER_S,
    BreakerOpen,
    BreakerState,
    CircuitBreaker,
    Permit,
    SharedBreakerState,
)
from gpuherd.usecases.service.shared_breaker import SharedBreaker
from tests.support.fake_clock import FakeClock
from tests.support.memory.shared_limits import MemoryBreakerStore

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


class Replica:
    """One process with its breaker; `looks` as its loop does once a second."""

    def __init__(
        self, clock: FakeClock, board: MemoryBreakerStore, *, on_duty: bool = False, workers: int = 2
    ) -> None:
        self.on_duty = on_duty
        self.breaker = CircuitBreaker(clock, threshold=10, recovery_s=60)
        self.look = SharedBreaker(self.breaker, board)
        self.breaker.share(lambda: workers, lambda: self.on_duty, self.look.changed)

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.acquire().failure()

    def succeed(self, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.acquire().success()

    def retry_after_s(self) -> float:
        with pytest.raises(BreakerOpen) as refusal:
            self.breaker.acquire()
        return refusal.value.retry_after_s

    def ends_late(self) -> Permit:
        """Begin a call whose outcome comes much later."""
        return self.breaker.acquire()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def board(clock: FakeClock) -> MemoryBreakerStore:
    return MemoryBreakerStore(clock)


@pytest.fixture
def on_duty(clock: FakeClock, board: MemoryBreakerStore) -> Replica:
    return Replica(clock, board, on_duty=True)


@pytest.fixture
def other(clock: FakeClock, board: MemoryBreakerStore) -> Replica:
    return Replica(clock, board)


async def look(*replicas: Replica) -> None:
    for it in replicas:
        await it.look()


async def open_both(on_duty: Replica, other: Replica, clock: FakeClock) -> None:
    other.fail(5)
    await clock.settle()
    await look(on_duty)
    assert (on_duty.breaker.state, other.breaker.state) == (OPEN, OPEN)


async def test_each_bears_its_part_of_the_failures(clock: FakeClock, board: MemoryBreakerStore) -> None:
    for workers, part in ((1, 10), (2, 5), (3, 4), (20, 1), (0, 10)):
        replica = Replica(clock, MemoryBreakerStore(clock), workers=workers)
        replica.fail(part - 1)
        assert replica.breaker.state is CLOSED
        replica.fail()
        assert replica.breaker.state is OPEN
        await clock.settle()


async def test_when_one_opens_all_are_open_at_their_next_look(
    on_duty: Replica, other: Replica, clock: FakeClock
) -> None:
    other.fail(5)
    await clock.advance(1)
    await look(on_duty)
    assert on_duty.breaker.state is OPEN
    assert on_duty.retry_after_s() == pytest.approx(59)
    since = on_duty.breaker.snapshot().opened_at
    assert since is not None
    assert clock.now() - since == timedelta(seconds=1)


async def test_one_who_makes_no_calls_shows_the_same_state(
    on_duty: Replica, other: Replica, clock: FakeClock
) -> None:
    await open_both(on_duty, other, clock)
    await clock.advance(60)
    assert (on_duty.breaker.state, other.breaker.state) == (HALF_OPEN, HALF_OPEN)


async def test_only_the_one_on_duty_probes_and_its_success_closes_for_all(
    on_duty: Replica, other: Replica, clock: FakeClock
) -> None:
    await open_both(on_duty, other, clock)
    await clock.advance(60)
    assert other.retry_after_s() == PROBING_RETRY_AFTER_S
    assert other.breaker.retry_after_s() == PROBING_RETRY_AFTER_S
    assert on_duty.breaker.retry_after_s() == 0
    on_duty.succeed(2)
    await clock.settle()
    await look(other)
    assert (on_duty.breaker.state, other.breaker.state) == (CLOSED, CLOSED)
    other.succeed()


async def test_its_failure_keeps_all_open_for_longer(
    on_duty: Replica, other: Replica, clock: FakeClock
) -> None:
    await open_both(on_duty, other, clock)
    await clock.advance(60)
    on_duty.fail()
    await clock.settle()
    await look(other)
    assert other.retry_after_s() == pytest.approx(120)
    # And the next one who probes knows how often that was in vain.
    on_duty.on_duty, other.on_duty = False, True
    await clock.advance(120)
    other.fail()
    assert other.retry_after_s() == pytest.approx(240)


async def test_when_the_one_who_probes_dies_the_next_on_duty_does(
    on_duty: Replica, other: Replica, clock: FakeClock
) -> None:
    await open_both(on_duty, other, clock)
    await clock.advance(60)
    on_duty.breaker.acquire()
    await clock.advance(10)
    other.on_duty = True
    other.succeed(2)
    assert other.breaker.state is CLOSED


async def test_the_verdict_of_one_who_slept_through_it_all_changes_nothing(
    on_duty: Replica, other: Replica, clock: FakeClock, board: MemoryBreakerStore
) -> None:
    await open_both(on_duty, other, clock)
    await clock.advance(60)
    late = on_duty.ends_late()
    other.on_duty = True
    other.succeed(2)
    await clock.settle()
    late.failure()
    assert on_duty.breaker.state is OPEN
    await clock.settle()
    assert on_duty.breaker.state is CLOSED
    await look(on_duty, other)
    assert (await board.read())[0] == 2


async def test_of_two_who_open_at_once_the_first_counts(
    on_duty: Replica, other: Replica, clock: FakeClock
) -> None:
    on_duty.fail(5)
    other.fail(5)
    await clock.settle()
    await clock.advance(60)
    on_duty.succeed(2)
    await clock.settle()
    await look(other)
    assert other.breaker.state is CLOSED


async def test_one_who_starts_in_an_outage_makes_no_call(
    on_duty: Replica, other: Replica, clock: FakeClock, board: MemoryBreakerStore
) -> None:
    await open_both(on_duty, other, clock)
    fresh = Replica(clock, board)
    await look(fresh)
    assert fresh.breaker.state is OPEN


async def test_what_could_not_be_told_is_told_at_the_next_look(
    on_duty: Replica, other: Replica, clock: FakeClock, board: MemoryBreakerStore
) -> None:
    board.is_away = True
    other.fail(5)
    await clock.settle()
    assert other.breaker.state is OPEN
    assert other.look._publishing is not None
    assert other.look._publishing.exception() is None
    await clock.advance(20)
    board.is_away = False
    await look(other, on_duty)
    assert on_duty.retry_after_s() == pytest.approx(40)


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_lost_answer_leaves_all_of_one_mind(
    on_duty: Replica, other: Replica, clock: FakeClock, board: MemoryBreakerStore, is_done: bool
) -> None:
    board.loses_answer, board.refuses = is_done, not is_done
    other.fail(5)
    await clock.settle()
    board.refuses = False
    await look(other, on_duty)
    assert (on_duty.breaker.state, other.breaker.state) == (OPEN, OPEN)


async def test_what_is_found_out_while_others_are_faster_is_dropped_for_what_they_found(
    on_duty: Replica, other: Replica, clock: FakeClock, board: MemoryBreakerStore
) -> None:
    board.before_write = board.write(SharedBreakerState(), 0)
    other.fail(5)
    await clock.settle()
    await look(other, on_duty)
    assert (on_duty.breaker.state, other.breaker.state) == (CLOSED, CLOSED)


async def test_a_look_without_news_forgets_no_failure(on_duty: Replica, clock: FakeClock) -> None:
    on_duty.fail(4)
    await look(on_duty)
    on_duty.fail()
    assert on_duty.breaker.state is OPEN
    await clock.settle()
