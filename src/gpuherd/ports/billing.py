"""What the use cases need of whoever sends the bill."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Protocol

from gpuherd.domain.costs.bill import ProviderCharge, StorageVolume


class ProviderBilling(Protocol):
    """The provider's own numbers. Every call only reads, and may raise `CloudError`."""

    async def charges(self, begin: datetime, end: datetime) -> tuple[ProviderCharge, ...]:
        """Return what is charged for the hours that begin in [begin, end), as far as it is written yet."""
        ...

    async def available_usd(self) -> Decimal:
        """Return what is left to be spent; it may be less than nothing."""
        ...

    async def list_volumes(self) -> tuple[StorageVolume, ...]:
        """Return all network volumes of the account."""
        ...
