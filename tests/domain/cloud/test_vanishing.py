"""How many machines may vanish at once, and since when no list was believed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuherd.domain.blast_limit import vanishing_brake
from gpuherd.domain.cloud.observation import ListRecord, Witness, why_unbelieved
from tests.support.fake_clock import START

POLL = timedelta(seconds=30)


def test_a_tenth_or_two_are_believed_at_once(subtests: pytest.Subtests) -> None:
    for lost, lately, instances, held in [
        (1, 0, 1, False),
        (2, 0, 2, False),
        (3, 0, 3, True),
        (2, 1, 5, True),
        (10, 0, 100, False),
        (11, 0, 100, True),
        (6, 5, 100, True),
    ]:
        with subtests.test(lost=lost, lately=lately, instances=instances, held=held):
            assert (vanishing_brake(lost, lately, instances) is not None) is held


def a_list(minute: float, *, complete: bool = True, witness: Witness = Witness.SEEN) -> ListRecord:
    at = START + timedelta(minutes=minute)
    return ListRecord(at, at, complete, witness)


def test_it_is_said_after_five_minutes_why_no_list_is_believed(subtests: pytest.Subtests) -> None:
    for last, believed_minute, minute, words in [
        (a_list(10), 10, 11, None),
        (a_list(10, complete=False), 6, 11, None),
        (a_list(10, complete=False), 5, 11, "do not fit the total"),
        (a_list(10, witness=Witness.MISSING), 5, 11, "none of our machines"),
        (a_list(5), 5, 11, "no list was made"),
        (None, None, 4, None),
        (None, None, 6, "no list was made"),
    ]:
        with subtests.test(last=last, believed_minute=believed_minute, minute=minute, words=words):
            believed_at = None if believed_minute is None else START + timedelta(minutes=believed_minute)
            found = why_unbelieved(last, believed_at, START, START + timedelta(minutes=minute), POLL)
            assert found is None if words is None else words in (found or "")


def test_who_looks_seldom_waits_for_three_looks() -> None:
    believed_at, hour = START, timedelta(hours=1)
    assert why_unbelieved(None, believed_at, START, START + 2 * hour, poll=hour) is None
    assert why_unbelieved(None, believed_at, START, START + 4 * hour, poll=hour) is not None
