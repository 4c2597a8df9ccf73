"""Amounts of money as whole numbers, so that sums are exact: nano-dollars, and nano-dollars an hour."""

from __future__ import annotations

from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal

NANO = 1_000_000_000
MICROSECOND = timedelta(microseconds=1)
HOUR_MICROS = timedelta(hours=1) // MICROSECOND


def nano_usd(usd: Decimal) -> int:
    """Return an amount, or a rate, in nano-dollars."""
    return int((usd * NANO).to_integral_value(ROUND_HALF_EVEN))


def usd_of(nano: int) -> Decimal:
    return Decimal(nano) / NANO


def cost_nano(rate: int, time: timedelta) -> int:
    """Return what `time` costs at a rate an hour, to the next lower nano-dollar."""
    return rate * (time // MICROSECOND) // HOUR_MICROS


def doubt_nano(rate: int, time: timedelta) -> int:
    """Return the same to the next higher one: by so much an amount may be wrong."""
    return -(-rate * (time // MICROSECOND) // HOUR_MICROS)
