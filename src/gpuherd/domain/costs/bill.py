"""The provider's bill: what it charges for each machine and volume, in its own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

# For a GB and a day: what is documented, where the volume itself does not say it.
VOLUME_USD_PER_GB_DAY = Decimal("0.002")
HOURS_A_DAY = 24


class BillCategory(StrEnum):
    """What is charged for; disks and network volumes are both storage."""

    GPU = "gpu"
    STORAGE = "storage"


@dataclass(frozen=True)
class ProviderCharge:
    """What one owner is charged for one thing at one price, in an hour or in a day.

    Nothing else of the provider's row is kept: the rest is about the account and its owner.
    """

    # A machine or a volume; empty where the provider does not say it.
    owner_id: str
    category: BillCategory
    begin: datetime
    # Card-seconds, or gigabyte-seconds.
    quantity: int
    # For a card and an hour, or a gigabyte and a day; None where the row does not say it.
    unit_usd: Decimal | None
    amount_usd: Decimal
    # The part of the amount that vouchers pay.
    voucher_usd: Decimal


@dataclass(frozen=True)
class StorageVolume:
    """A volume with a life of its own: it costs money whether a machine has it or not."""

    volume_id: str
    name: str
    region: str
    size_gb: int
    usd_per_gb_day: Decimal = VOLUME_USD_PER_GB_DAY

    @property
    def hourly_usd(self) -> Decimal:
        return self.size_gb * self.usd_per_gb_day / HOURS_A_DAY
