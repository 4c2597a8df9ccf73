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
    """Return the mode that the cloud's word means; it has others, and sometimes says none."""
    return BillingMode(word) if word in {it.value for it in BillingMode} else None


class OfferKey(NamedTuple):
    """What an offer is called wherever it is remembered: its stock is the same for everybody."""

    product_id: str
    region: str
    # None where a version wrote it that did not keep it.
    billing_mode: BillingMode | None


@dataclass(frozen=True)
class Region:
    """A place where machines run. People say the code, the wire wants the cluster id."""

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
    # In which list it stood: one for each way to pay. None: in whichever was asked for.
    listed_as: BillingMode | None = None

    def gpu_hourly_usd(self, mode: BillingMode) -> Decimal | None:
        """Return the price of one GPU for one hour, or None where it is not sold that way."""
        return self.spot_usd if mode is BillingMode.SPOT else self.on_demand_usd

    def hourly_usd(self, mode: BillingMode, gpu_num: int, disk_gb: int) -> Decimal | None:
        """Return the price of a whole machine for one hour, its disk included, or None as above."""
        price = self.gpu_hourly_usd(mode)
        return None if price is None else price * gpu_num + self.disk.hourly_usd(disk_gb)


HOURS_A_DAY = 24


# To the billionth of a dollar: most prices of a disk for one hour have no end.
NANO_USD = Decimal("1e-9")


FREE = Decimal(0)
