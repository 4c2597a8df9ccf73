"""The catalogue of people and rentals: one memory, but no rental waits for a question of people."""

from __future__ import annotations

import asyncio

import pytest

from gpuherd.domain.cloud.offer import BillingMode, Offer, Template
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.instance import Wish
from gpuherd.simulator.cloud import SimulatedCloud
from gpuherd.simulator.world.world import World
from gpuherd.usecases.cloud.catalogue import CatalogueCache
from tests.support.builders import PRODUCT
from tests.support.fake_clock import FakeClock


class CountedCloud(SimulatedCloud):
    """Counts what it is asked, and keeps people waiting until it is let go."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()

    async def get_template(self, template_id: str) -> Template:
        self.asked += 1
        await self.open.wait()
        return await super().get_template(template_id)

    async def list_offers(self, billing_mode: BillingMode) -> tuple[Offer, ...]:
        self.asked += 1
        await self.open.wait()
        return await super().list_offers(billing_mode)

    async def check_registry_auth(self, auth_id: str) -> None:
        self.asked += 1
        await super().check_registry_auth(auth_id)


@pytest.fixture
def rental_cloud(world: World) -> CountedCloud:
    return CountedCloud(world)


@pytest.fixture
def people_cloud(world: World) -> CountedCloud:
    return CountedCloud(world)


@pytest.fixture
def catalogue(rental_cloud: CountedCloud, clock: FakeClock) -> CatalogueCache:
    return CatalogueCache(rental_cloud, clock)


@pytest.fixture
def browsed(catalogue: CatalogueCache, people_cloud: CountedCloud) -> CatalogueCache:
    return catalogue.for_browsing(people_cloud)


async def test_a_template_that_is_not_there_is_asked_for_once_in_30_s(
    browsed: CatalogueCache, people_cloud: CountedCloud, clock: FakeClock
) -> None:
    for _ in range(200):
        with pytest.raises(NotFound) as missing:
            await browsed.find_template("999")
        assert missing.value.code == "TEMPLATE_NOT_FOUND"
    assert people_cloud.asked == 1
    await clock.advance(30)
    with pytest.raises(NotFound):
        await browsed.find_template("999")
    assert people_cloud.asked == 2


async def test_wrong_ids_do_not_displace_a_template_that_is_used(
    browsed: CatalogueCache, people_cloud: CountedCloud
) -> None:
    await browsed.find_template("101")
    for number in range(2_000):
        with pytest.raises(NotFound):
            await browsed.find_template(f"9{number:05}")
    people_cloud.asked = 0
    await browsed.find_template("101")
    assert people_cloud.asked == 0


async def test_a_rental_asks_for_itself_what_somebody_was_told_is_not_there(
    catalogue: CatalogueCache, browsed: CatalogueCache, rental_cloud: CountedCloud
) -> None:
    for view in (browsed, catalogue):
        with pytest.raises(NotFound):
            await view.run_spec(Wish(PRODUCT, "999"))
    assert rental_cloud.asked == 1


async def test_a_rental_does_not_wait_for_a_question_of_people(
    catalogue: CatalogueCache, browsed: CatalogueCache, people_cloud: CountedCloud
) -> None:
    people_cloud.open.clear()
    asked = [
        asyncio.create_task(browsed.offers(BillingMode.SPOT)),
        asyncio.create_task(browsed.find_template("101")),
    ]
    await asyncio.sleep(0)
    assert await catalogue.offers(BillingMode.SPOT)
    assert (await catalogue.run_spec(Wish(PRODUCT, "101"))).template_id == "101"
    people_cloud.open.set()
    await asyncio.gather(*asked)


async def test_people_and_rentals_share_what_is_known(
    catalogue: CatalogueCache, browsed: CatalogueCache, people_cloud: CountedCloud
) -> None:
    await catalogue.offers(BillingMode.SPOT)
    await catalogue.run_spec(Wish(PRODUCT, "101"))
    await browsed.offers(BillingMode.SPOT)
    await browsed.run_spec(Wish(PRODUCT, "101"))
    assert people_cloud.asked == 0


async def test_plans_ask_for_a_registry_credential_once_in_30_s(
    browsed: CatalogueCache, people_cloud: CountedCloud, clock: FakeClock
) -> None:
    for _ in range(100):
        with pytest.raises(NotFound) as missing:
            await browsed.check_registry_auth("nobody's")
        assert missing.value.code == "REGISTRY_AUTH_NOT_FOUND"
        await browsed.check_registry_auth("r3g1stry0auth0of0the0demo0team00")
    assert people_cloud.asked == 2
    await clock.advance(30)
    await browsed.check_registry_auth("r3g1stry0auth0of0the0demo0team00")
    assert people_cloud.asked == 3
