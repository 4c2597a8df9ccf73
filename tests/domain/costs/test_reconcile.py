"""The meter beside the bill: which differences are worth a word."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from gpuherd.domain.money.bill import (
    Comparison,
    Metered,
    compare,
    is_other_price,
    is_settled,
    worst,
)
from gpuherd.domain.money.usage_span import NANO

DAY = date(2026, 11, 2)


def line(metered: float, billed: float | None, doubt: float = 0.0) -> Comparison:
    return Comparison(
        "m1", None, int(metered * NANO), int(doubt * NANO), None if billed is None else int(billed * NANO)
    )


def test_drift_is_what_was_metered_less_what_was_billed():
    assert line(2.5, 2.0).drift == NANO // 2
    assert line(1.0, None).drift is None


def test_a_difference_is_told_above_ten_cents_two_per_cent_and_our_own_doubt(
    subtests: pytest.Subtests,
) -> None:
    for metered, billed, doubt, told in [
        # Less than ten cents is never worth a word, whatever part of the bill it is.
        (0.09, 0.0, 0.0, False),
        (0.11, 0.0, 0.0, True),
        (0.0, 0.11, 0.0, True),
        # Of a large bill two per cent are.
        (101.9, 100.0, 0.0, False),
        (102.1, 100.0, 0.0, True),
        (97.9, 100.0, 0.0, True),
        # What the meter itself is not sure of explains it.
        (1.5, 1.0, 0.6, False),
        (1.5, 1.0, 0.4, True),
        # Nobody has asked for the bill yet.
        (5.0, None, 0.0, False),
    ]:
        with subtests.test(metered=metered, billed=billed, doubt=doubt, told=told):
            assert line(metered, billed, doubt).is_drifting is told


def test_every_machine_that_either_side_knows_is_compared():
    ours = [Metered("a", "inst_1", 5 * NANO, 1), Metered("a", None, NANO, 1), Metered("b", None, NANO, 0)]
    lines = {it.cloud_id: it for it in compare(ours, {"a": 6 * NANO, "c": 2 * NANO})}
    assert (lines["a"].metered, lines["a"].doubt, lines["a"].instance_id) == (6 * NANO, 2, "inst_1")
    assert lines["a"].drift == 0
    assert (lines["b"].billed, lines["b"].drift) == (0, NANO)
    assert (lines["c"].metered, lines["c"].drift) == (0, -2 * NANO)


def test_without_a_bill_nothing_was_billed_is_not_said():
    (only,) = compare([Metered("a", None, NANO, 0)], None)
    assert only.billed is None


def test_the_greatest_difference_comes_first_and_few_are_told():
    lines = compare([Metered(str(n), None, n * NANO, 0) for n in range(1, 60)], {})
    assert [it.metered // NANO for it in lines[:3]] == [59, 58, 57]
    assert len(worst(lines)) == 20


@pytest.mark.parametrize(
    ("at", "settled"),
    [
        (datetime(2026, 11, 2, 23, 59, tzinfo=UTC), False),
        (datetime(2026, 11, 3, 2, 59, tzinfo=UTC), False),
        (datetime(2026, 11, 3, 3, 0, tzinfo=UTC), True),
    ],
)
def test_a_bill_is_whole_some_hours_after_its_day(at, settled):
    assert is_settled(DAY, at) is settled


def test_another_price_is_told_apart_from_more_cards(subtests: pytest.Subtests) -> None:
    for rate, unit, cards, is_other in [
        (350_000_000, 350_000_000, 1, False),
        (700_000_000, 350_000_000, 2, False),
        # Half the price of one card is not the price of two.
        (350_000_000, 175_000_000, 1, True),
        (350_000_000, 360_000_000, 1, True),
        # Rounded to five digits.
        (333_333_333, 333_330_000, 1, False),
        (350_000_000, 0, 1, False),
    ]:
        with subtests.test(rate=rate, unit=unit, cards=cards, is_other=is_other):
            assert is_other_price(rate, unit, quantity_s=3600 * cards, metered_s=3590) is is_other


def test_of_a_machine_that_was_not_metered_no_price_is_known():
    assert is_other_price(350_000_000, 1, 3600, 0) is False
