"""A provider whose bill, balance and volumes a test decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Self

from gpuherd.domain.errors import CloudError
from gpuherd.domain.money.bill import BillCategory, ProviderCharge, StorageVolume
from tests.support.herd import Herd


def charge(
    owner_id: str,
    begin: datetime,
    usd: str,
    *,
    category: BillCategory = BillCategory.GPU,
    unit: str = "1",
    quantity: int = 3600,
) -> ProviderCharge:
    return ProviderCharge(owner_id, category, begin, quantity, Decimal(unit), Decimal(usd), Decimal(0))


@dataclass
class FakeBilling:
    """The billing port."""

    rows: list[ProviderCharge] = field(default_factory=list)
    available: Decimal = Decimal(1000)
    volumes: tuple[StorageVolume, ...] = ()
    # Raised by every call.
    error: CloudError | None = None
    calls: int = 0

    @classmethod
    def instead_of(cls, herd: Herd) -> Self:
        """Put one in the place of the simulated provider."""
        it = cls()
        herd.billing.charges = it.charges
        herd.billing.available_usd = it.available_usd
        herd.billing.list_volumes = it.list_volumes
        return it

    async def charges(self, begin: datetime, end: datetime) -> tuple[ProviderCharge, ...]:
        self._called()
        return tuple(it for it in self.rows if begin <= it.begin < end)

    async def available_usd(self) -> Decimal:
        self._called()
        return self.available

    async def list_volumes(self) -> tuple[StorageVolume, ...]:
        self._called()
        return self.volumes

    def _called(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
