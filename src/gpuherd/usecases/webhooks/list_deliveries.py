"""List deliveries: what became of each webhook."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.ports.webhooks import DeliveryLog, DeliveryPage, DeliveryQuery


@dataclass(frozen=True)
class ListDeliveries:
    """Newest first, page by page."""

    log: DeliveryLog

    async def __call__(self, query: DeliveryQuery) -> DeliveryPage:
        return await self.log.page(query)
