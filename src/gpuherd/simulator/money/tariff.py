"""What storage costs; GPU prices are the catalogue's."""

from __future__ import annotations

from fractions import Fraction

from gpuherd.simulator.catalogue import FREE_DISK_GB, PRICE_UNITS_PER_USD

HOUR_S = 3600
DAY_S = 86_400

DISK_USD_PER_GB_DAY = Fraction(5, 1000)
VOLUME_USD_PER_GB_DAY = Fraction(2, 1000)


def gpu_usd_per_hour(price_units: int, gpu_num: int) -> Fraction:
    """Return what a machine costs an hour by its product; one without a GPU is priced as a whole."""
    return Fraction(price_units * max(1, gpu_num), PRICE_UNITS_PER_USD)


def paid_disk_gb(disk_gb: int) -> int:
    """Return how much of a root disk is paid for; a part of it is free."""
    return max(0, disk_gb - FREE_DISK_GB)


def disk_usd_per_hour(disk_gb: int) -> Fraction:
    """Return what a root disk costs an hour."""
    return paid_disk_gb(disk_gb) * DISK_USD_PER_GB_DAY / 24


def volume_usd_per_hour(size_gb: int) -> Fraction:
    return size_gb * VOLUME_USD_PER_GB_DAY / 24
