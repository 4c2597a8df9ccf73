"""A price is shown with the same digits everywhere."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.contract.codec.price_text import price_text


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        ("0", "$0.00"),
        ("0.2", "$0.20"),
        ("0.175", "$0.175"),
        ("0.208333333", "$0.20834"),
        ("0.000000001", "$0.00001"),
        ("12.34567", "$12.34567"),
        ("1489.2", "$1,489.20"),
        ("2000", "$2,000.00"),
    ],
)
def test_cents_at_least_and_a_thousandth_of_one_at_most(usd: str, shown: str) -> None:
    assert price_text(Decimal(usd)) == shown


@given(st.decimals(0, 10_000, places=9))
def test_it_never_says_less_than_it_costs_and_hardly_more(usd: Decimal) -> None:
    shown = Decimal(price_text(usd).removeprefix("$").replace(",", ""))
    assert 0 <= shown - usd < Decimal("0.00001")
