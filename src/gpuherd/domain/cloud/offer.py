"""What the cloud sells: offers, regions, prices, and the tariff of disks."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from typing import NamedTuple


class BillingMode(StrEnum):
    """How a machine is paid for."""

    SPOT = "spot"
    ON_DEMAND = "onDemand"


def known_mode(word: str) -> BillingMode | None:
    """Return the billing mode for the cloud's word; None for other words and no word."""
    return BillingMode(word) if word in {it.value for it in BillingMode} else None


class OfferKey(NamedTuple):
    """Identifies an offer in shared memory: all users see the same stock."""

    product_id: str
    region: str
    # None in records of a version that did not store it.
    billing_mode: BillingMode | None


@dataclass(frozen=True)
class Region:
    """A place where machines run. People use the code; the cloud's API uses the cluster id."""

    code: str
    label: str
    cluster_id: str
    gpu_names: tuple[str, ...] = ()

    def is_called(self, word: str) -> bool:
        """Return True if `word` names this region."""
        return word.strip().casefold() in (
            self.code.casefold(),
            self.label.casefold(),
            self.cluster_id.casefold(),
        )


@dataclass(frozen=True)
class DiskTariff:
    """Novita's list price by default. It comes from the settings, because the catalogue does not show it."""

    usd_per_gb_day: Decimal = Decimal("0.005")
    free_gb: int = 60

    def hourly_usd(self, disk_gb: int) -> Decimal:
        """Return what a disk of this size costs an hour."""
        if disk_gb <= self.free_gb:
            return FREE
        price = (disk_gb - self.free_gb) * self.usd_per_gb_day / HOURS_A_DAY
        return price.quantize(NANO_USD, ROUND_HALF_EVEN).normalize() if price else FREE


NOVITA_DISK = DiskTariff()


@dataclass(frozen=True)
class Offer:
    """One product in one region at one price."""

    product_id: str
    product_name: str
    region: str
    cluster_id: str
    available: bool
    stock: str
    spot_usd: Decimal | None
    on_demand_usd: Decimal | None
    cpu_per_gpu: int = 0
    memory_gb_per_gpu: int = 0
    disk_gb_min: int = 0
    disk_gb_max: int = 0
    disk: DiskTariff = NOVITA_DISK
    # The billing mode of the list that showed the offer. None: the mode that was requested.
    listed_as: BillingMode | None = None

    def gpu_hourly_usd(self, mode: BillingMode) -> Decimal | None:
        """Return the price of one GPU per hour; None if it is not sold that way."""
        return self.spot_usd if mode is BillingMode.SPOT else self.on_demand_usd

    def hourly_usd(self, mode: BillingMode, gpu_num: int, disk_gb: int) -> Decimal | None:
        """Return the price of a machine per hour including its disk; None if it is not sold that way."""
        price = self.gpu_hourly_usd(mode)
        return None if price is None else price * gpu_num + self.disk.hourly_usd(disk_gb)


HOURS_A_DAY = 24


# One billionth of a dollar: hourly disk prices are often periodic decimals.
NANO_USD = Decimal("1e-9")


FREE = Decimal(0)
