"""A price that moves between the catalogue and the create call."""

from __future__ import annotations

from decimal import Decimal

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.money.usage_span import CostKind, nano_usd
from gpuherd.simulator.simulated_catalogue import PRICE_UNITS_PER_USD
from gpuherd.simulator.world import World, set_price
from tests.support.herd import Herd


async def test_a_machine_is_metered_at_the_price_at_which_the_cloud_rented_it(
    herd: Herd, world: World
) -> None:
    # Read by now, and believed for half a minute.
    offers = await herd.offers(BillingMode.SPOT)
    for product_id in {it.product_id for it in offers}:
        product = world.catalogue.product(product_id)
        assert product is not None
        if product.spot_price:
            set_price(world, product_id, spot_price=product.spot_price * 11 // 10)
    it = await herd.settle(await herd.launch())
    (machine,) = world.alive()
    (gpu,) = [span for span in await herd.stores.costs.spans_of(it.id) if span.kind is CostKind.GPU]
    paid = Decimal(machine.price) / PRICE_UNITS_PER_USD
    assert it.rental is not None and it.rental.gpu_hourly_usd < paid, "the catalogue was behind"
    assert gpu.rate.nano_usd == nano_usd(paid)
