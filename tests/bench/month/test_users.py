"""Who rents in a month is drawn by the shares that its page names, and always the same for a seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from bench.month.users import DAY_S, SHARES, WANTED_MAX_S, Habit, draw_rentals
from bench.month.weather import month_catalogue

MANY = draw_rentals(7, 1000, 30, month_catalogue())


def test_a_seed_has_always_the_same_users_and_another_has_others() -> None:
    again = draw_rentals(7, 1000, 30, month_catalogue())
    assert again == MANY
    assert draw_rentals(8, 1000, 30, month_catalogue()) != MANY


def test_as_many_come_as_are_asked_for_all_over_the_month_and_in_their_shares() -> None:
    counted = Counter(it.habit for it in MANY)
    assert len(MANY) == 1000
    assert all(0 <= one.at_s <= other.at_s <= 30 * DAY_S for one, other in pairwise(MANY))
    assert all(abs(counted[habit] - share * 10) < 50 for habit, share in SHARES.items())
    assert all(0 < it.needed_s <= WANTED_MAX_S for it in MANY)


def test_whoever_forgets_is_ended_by_what_was_agreed_and_only_batch_asks_for_replacement() -> None:
    for it in MANY:
        has_end = (it.terms.lease, it.terms.silence, it.terms.idle) != (None, None, None)
        assert has_end == (it.habit in (Habit.FORGOTTEN, Habit.INTERACTIVE, Habit.AGENT))
        assert it.replaces == (it.habit is Habit.BATCH)
        assert it.is_spot == (it.habit is not Habit.ON_DEMAND)
