"""What a root disk costs: so much a GB and day above a part that is free, whether the machine runs or not."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

HOURS_A_DAY = 24
# To the billionth of a dollar: most prices of a disk for one hour have no end.
NANO_USD = Decimal("1e-9")
FREE = Decimal(0)


@dataclass(frozen=True)
class DiskTariff:
    """Novita's list price by default. The catalogue does not tell it, so the settings do."""

    usd_per_gb_day: Decimal = Decimal("0.005")
    free_gb: int = 60

    def hourly_usd(self, disk_gb: int) -> Decimal:
        """Return what a disk of this size costs an hour."""
        if disk_gb <= self.free_gb:
            return FREE
        price = (disk_gb - self.free_gb) * self.usd_per_gb_day / HOURS_A_DAY
        return price.quantize(NANO_USD, ROUND_HALF_EVEN).normalize() if price else FREE


NOVITA_DISK = DiskTariff()
