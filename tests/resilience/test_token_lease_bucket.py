"""One limit for many: whoever borrows, dies or sleeps, together they never spend more than it allows."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.resilience.shared_rate_limit import (
    BATCH_RESERVE,
    LEASE_MIN_S,
    Limit,
    ReturnedTokens,
    TokenLease,
    TokenLeaseBucket,
)

ONE_A_SECOND = Limit(60, 10)


class Books:
    """The row that all share, and the clock of the database."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.doc: dict[str, Any] | None = None
        self.now = self.at = 0.0

    def lease(self, wanted: int, spent: ReturnedTokens | None = None) -> TokenLease:
        bucket = self._bucket()
        leased = bucket.lease(wanted, spent)
        self._keep(bucket)
        return leased

    def throttle(self, pause_s: float) -> TokenLease:
        bucket = self._bucket()
        leased = bucket.throttle(pause_s)
        self._keep(bucket)
        return leased

    def _bucket(self) -> TokenLeaseBucket:
        return TokenLeaseBucket(self.limit, self.doc, self.now - self.at)

    def _keep(self, bucket: TokenLeaseBucket) -> None:
        # Through the words of the database and back.
        self.doc, self.at = json.loads(json.dumps(bucket.doc())), self.now


def test_it_begins_full_and_lends_what_is_wanted() -> None:
    books = Books(ONE_A_SECOND)
    assert books.lease(7).granted == 7
    short = books.lease(7)
    assert short.granted == 3
    assert short.wait_s > 0


def test_what_was_spent_makes_room_at_once() -> None:
    books = Books(ONE_A_SECOND)
    loan = books.lease(10)
    refused = books.lease(1, ReturnedTokens(loan.period, 10))
    assert (refused.granted, refused.wait_s) == (0, pytest.approx(1))
    books.now += 1
    assert books.lease(1).granted == 1


def test_what_may_still_be_spent_leaves_no_room() -> None:
    books = Books(ONE_A_SECOND)
    books.lease(10)
    refused = books.lease(1)
    # They are void when the period after theirs is over; until then nothing comes in.
    assert refused.granted == 0
    books.now += 1.999
    assert books.lease(1).granted == 0
    books.now += 1.002
    assert books.lease(1).granted == 1


def test_a_word_about_a_loan_that_is_long_void_frees_nobody_elses() -> None:
    books = Books(Limit(600, 30))
    old = books.lease(30)
    books.now += 60
    books.lease(30)
    books.now += 0.8
    books.lease(0, ReturnedTokens(old.period, 30))
    books.now += 0.6
    assert books.lease(1).granted == 0


def test_a_loan_from_the_end_of_a_period_leaves_no_room_while_it_is_good() -> None:
    books = Books(Limit(600, 30))
    books.lease(1)
    books.now += 0.7
    assert books.lease(29).granted == 29
    books.now += 0.7
    assert books.lease(30).granted <= 1


def test_in_plenty_a_whole_batch_is_lent_and_else_only_what_is_wanted() -> None:
    books = Books(Limit(300, 60, batch=6))
    granted = [books.lease(1).granted for _ in range(60)]
    plentiful = granted[: granted.index(1)]
    assert set(plentiful) == {6}
    assert 60 - sum(plentiful) < BATCH_RESERVE * 6
    assert sum(granted) == 60


def test_a_look_borrows_nothing() -> None:
    books = Books(Limit(300, 60, batch=6))
    assert [books.lease(0).granted for _ in range(3)] == [0, 0, 0]
    assert books.lease(60).granted == 60


def test_a_refusal_halves_the_rate_for_all_once_and_keeps_its_pause() -> None:
    books = Books(Limit(60, 10))
    assert books.throttle(30).share == pytest.approx(0.5)
    books.now += 0.5
    assert books.throttle(0).share == pytest.approx(0.5)
    assert books.lease(5).wait_s == pytest.approx(29.5)
    books.now += 29.5
    assert books.lease(5).granted == 1
    books.now += 60
    assert books.lease(0).share == pytest.approx(0.6)


def test_a_clock_that_was_set_back_stops_nothing_for_longer_than_its_pauses() -> None:
    books = Books(ONE_A_SECOND)
    loan = books.lease(10)
    books.lease(0, ReturnedTokens(loan.period, 10))
    books.now -= 3600
    assert books.lease(1).granted == 0
    books.now += 1
    assert books.lease(1).granted == 1


def test_a_smaller_limit_is_kept_from_the_next_draw_on() -> None:
    books = Books(Limit(60, 100))
    books.lease(1)
    books.limit = Limit(60, 5)
    assert books.lease(100).granted <= 5


def test_a_fast_rate_holds_its_loans_for_a_shorter_time() -> None:
    assert Limit(300, 60).lease_s == 1
    assert Limit(3_000, 60).lease_s == pytest.approx(0.3)
    assert Limit(100_000, 60).lease_s == LEASE_MIN_S


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_limit_that_makes_no_sense_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Limit(*wrong)


@dataclass
class Borrower:
    """One process: spends while its loan is good, and may be dead for all that anybody knows."""

    held: int = 0
    good_until: float = 0.0
    loan: ReturnedTokens | None = None

    def lease(self, books: Books, now: float, wanted: int) -> None:
        loan, self.loan, self.held = self.loan, None, 0
        leased = books.lease(wanted, loan)
        self.held, self.loan = leased.granted, ReturnedTokens(leased.period, leased.granted)
        self.good_until = now + books.limit.lease_s

    def spend(self, now: float, tokens: int) -> int:
        spent = min(tokens, self.held) if now < self.good_until else 0
        self.held -= spent
        return spent


WHO = st.integers(0, 2)
MANY = st.sampled_from([1.0, 3.0, 30.0])
# In lengths of a loan: around its end and that of a period it would go wrong.
SECONDS = st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0, 1.1, 2.0, 7.3])
DRAW = st.tuples(st.just("draw"), WHO, MANY)
WAIT = st.tuples(st.just("wait"), st.just(0), SECONDS)
SPEND = st.tuples(st.just("all spend"), st.just(0), st.just(0.0))
RARE = st.one_of(
    st.tuples(st.sampled_from(["die", "lose"]), WHO, MANY),
    st.tuples(st.sampled_from(["throttle", "set back"]), st.just(0), SECONDS),
)
# Borrow, let time pass, and then all of them spend in one moment: nothing is harder to bear.
SCENE = st.tuples(DRAW, WAIT, DRAW, st.one_of(WAIT, RARE), DRAW, SPEND)


LIMIT = st.builds(Limit, st.sampled_from([20, 300, 600]), st.sampled_from([1, 10, 30]), st.integers(1, 5))


@settings(deadline=None, max_examples=300)
@given(LIMIT, st.lists(SCENE, min_size=1, max_size=6))
def test_together_they_never_spend_more_than_the_burst_and_the_rate(
    limit: Limit, scenes: list[tuple[tuple[str, int, float], ...]]
) -> None:
    books, borrowers, now = Books(limit), [Borrower() for _ in range(4)], 0.0
    spent: list[tuple[float, int]] = []
    for kind, who, amount in itertools.chain.from_iterable(scenes):
        it = borrowers[who]
        if kind == "draw":
            it.lease(books, now, int(amount))
        elif kind == "all spend":
            spent.append((now, sum(each.spend(now, each.held) for each in borrowers)))
        elif kind == "die":
            borrowers[who] = Borrower()
        elif kind == "lose":
            # The answer to a draw never arrives.
            it.lease(books, now, int(amount))
            borrowers[who] = Borrower()
        elif kind == "wait":
            seconds = amount * limit.lease_s
            now, books.now = now + seconds, books.now + seconds
        elif kind == "throttle":
            books.throttle(amount)
        else:
            books.now -= amount
    for first, (since, _) in enumerate(spent):
        total = 0
        for at, tokens in spent[first:]:
            total += tokens
            assert total <= limit.burst + limit.per_minute / 60 * (at - since) + 1e-3


@settings(deadline=None)
@given(LIMIT, st.lists(st.tuples(WHO, st.floats(0, 3), st.booleans()), min_size=10, max_size=60))
def test_a_clock_that_was_set_forward_counts_as_time_and_no_more(
    limit: Limit, steps: list[tuple[int, float, bool]]
) -> None:
    books, borrowers, granted, now = Books(limit), [Borrower() for _ in range(4)], 0, 0.0
    for who, seconds, is_step in steps:
        books.now += seconds * (100 if is_step else 1)
        now += seconds
        borrowers[who].lease(books, now, 5)
        granted += borrowers[who].held
    assert granted <= limit.burst + limit.per_minute / 60 * books.now + 1e-3


@settings(deadline=None)
@given(st.integers(1, 120))
def test_one_alone_gets_all_of_its_limit_at_once(per_minute: int) -> None:
    books, it, total = Books(Limit(per_minute, per_minute, batch=max(1, per_minute // 20))), Borrower(), 0
    while True:
        it.lease(books, 0.0, 1)
        if not (spent := it.spend(0.0, 1_000)):
            break
        total += spent
    assert total == per_minute
