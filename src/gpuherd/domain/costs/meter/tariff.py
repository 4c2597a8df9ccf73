"""What a machine costs an hour, GPUs and disk apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.disk_tariff import NOVITA_DISK, DiskTariff
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.costs.amount import nano_usd
from gpuherd.domain.costs.span import PriceSource, Rate

# How a machine is paid for, its product, its cluster.
PriceKey = tuple[str, str, str]
PAID_BY_TIME = frozenset(it.value for it in BillingMode)
NO_RATE = Rate(0, PriceSource.UNKNOWN)
# No price moves further than this while a machine is rented.
PRICE_MOVE_MAX = Decimal("0.25")


@dataclass(frozen=True)
class AgreedTerms:
    """What the create call that made a machine agreed, and when it went out."""

    sent_at: datetime
    gpu_hourly_usd: Decimal | None
    # What the clocks showed then, where that is on record.
    sent_reading: ClockReading | None = None


@dataclass(frozen=True)
class Tariff:
    """Today's prices, as far as they are known: of one GPU an hour, and of the disk above the free part."""

    gpu_hourly_usd: Mapping[PriceKey, Decimal] = field(default_factory=dict)
    disk: DiskTariff = NOVITA_DISK

    def gpu_rate(self, machine: Machine, agreed: Decimal | None) -> Rate:
        """Return what its GPUs cost: what was agreed, else what such a machine costs today."""
        # One without a GPU is priced as a whole. Who has paid for months pays nothing by the hour.
        cards = max(machine.gpu_num, 1)
        if machine.billing_mode and machine.billing_mode not in PAID_BY_TIME:
            return Rate(0, PriceSource.CATALOGUE)
        if agreed is not None:
            return Rate(nano_usd(_rented_at(machine, agreed * cards)), PriceSource.RENTAL)
        price = self.gpu_hourly_usd.get((machine.billing_mode, machine.product_id, machine.cluster_id))
        return NO_RATE if price is None else Rate(nano_usd(price * cards), PriceSource.CATALOGUE)

    def disk_rate(self, machine: Machine) -> Rate:
        if machine.billing_mode and machine.billing_mode not in PAID_BY_TIME:
            return Rate(0, PriceSource.CATALOGUE)
        return Rate(nano_usd(self.disk.hourly_usd(machine.disk_gb)), PriceSource.CATALOGUE)


def _rented_at(machine: Machine, agreed: Decimal) -> Decimal:
    """Return what a machine costs that was rented at this price.

    A price may move between the catalogue and the create call, and the cloud rents at its own. The field that
    says so is in no document: it is believed where it is near, and may be of one GPU or of all where not.
    """
    shown = machine.hourly_usd
    # guard: a price on a machine that is far from what was agreed is not believed
    return shown if shown is not None and abs(shown - agreed) <= agreed * PRICE_MOVE_MAX else agreed
