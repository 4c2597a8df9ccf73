"""What machines cost that we did not rent ourselves: today's prices, by product, place and mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import structlog

from gpuherd.domain.errors import CloudError
from gpuherd.domain.machine import Machine
from gpuherd.domain.offer import BillingMode, Offer
from gpuherd.usecases.catalogue import Catalogue

log = structlog.get_logger()

Place = tuple[str, str, str]


@dataclass(frozen=True)
class PriceList:
    """Prices of one GPU for one hour."""

    prices: Mapping[Place, Decimal] = field(default_factory=dict)

    def gpu_hourly_usd(self, machine: Machine) -> Decimal | None:
        """Return the price of one GPU of this machine, or None where it is not known."""
        return self.prices.get((machine.billing_mode, machine.product_id, machine.cluster_id))

    def hourly_usd(self, machine: Machine) -> Decimal | None:
        """Return the price of the whole machine while it runs."""
        price = self.gpu_hourly_usd(machine)
        return None if price is None else price * max(machine.gpu_num, 1)


async def price_list(catalogue: Catalogue) -> PriceList:
    """Return today's prices, as far as the cloud tells them."""
    prices: dict[Place, Decimal] = {}
    for mode in BillingMode:
        for offer in await _offers(catalogue, mode):
            price = offer.gpu_hourly_usd(mode)
            if price is not None:
                prices[mode.value, offer.product_id, offer.cluster_id] = price
    return PriceList(prices)


async def _offers(catalogue: Catalogue, mode: BillingMode) -> tuple[Offer, ...]:
    try:
        return await catalogue.offers(mode)
    except CloudError as error:
        # A price is good to know, but nothing waits for it.
        log.info("prices.unknown", mode=mode.value, code=error.code)
        return ()
