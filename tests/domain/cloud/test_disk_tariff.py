"""What a disk costs an hour."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.cloud.offer import NOVITA_DISK, DiskTariff


def test_only_what_is_above_the_free_part_costs(subtests: pytest.Subtests) -> None:
    for disk_gb, usd in [
        (0, "0"),
        (10, "0"),
        (60, "0"),
        (61, "0.000208333"),
        (300, "0.05"),
        (500, "0.091666667"),
    ]:
        with subtests.test(disk_gb=disk_gb, usd=usd):
            assert str(NOVITA_DISK.hourly_usd(disk_gb)) == usd


@given(st.integers(0, 100_000), st.integers(0, 1000), st.decimals(0, 10, places=4))
def test_a_day_costs_the_size_times_the_price(disk_gb: int, free_gb: int, price: Decimal) -> None:
    hourly_usd = DiskTariff(price, free_gb).hourly_usd(disk_gb)
    exact = Fraction(price) * max(0, disk_gb - free_gb) / 24
    assert abs(Fraction(hourly_usd) - exact) <= Fraction(1, 2 * 10**9)
    assert hourly_usd >= 0
