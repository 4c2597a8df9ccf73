"""What a difference changes, as the doctor words it, is what the service then does."""

from __future__ import annotations

import pytest

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.errors import CloudRefused, MachineGone
from gpuherd.domain.instance.rent_attempt import Tag, cloud_name, machine_tag
from gpuherd.ops import live_assumptions
from tests.ops.doctor.live.support import LiveWorld
from tests.simulator.builders import a_request
from tests.support.simulated_cloud import SimulatedAccount, SimulatedCloud

TAG = Tag("abcdefgh", "0" * 26, 1, "abcdef")
UNKNOWN_ID = "0" * 16
HOUR_S = 3600


class Service:
    """The adapters of the service in front of a Novita that does otherwise."""

    def __init__(self, scenario: str) -> None:
        self.live = LiveWorld(scenario)
        self.cloud = SimulatedCloud(self.live.world, call=self.live.call)
        self.billing = SimulatedAccount(self.live.world, self.live.call)

    async def listed_machine(self) -> Machine:
        """Return a running machine of ours as the list shows it."""
        envs = (("GPUHERD_TAG", str(TAG)),)
        self.live.world.create(a_request(name=cloud_name("job", TAG), envs=envs))
        await self.live.clock.sleep(HOUR_S)
        (machine,) = (await self.cloud.list_machines()).machines
        return machine


def says(assumption: live_assumptions.Assumption, words: str) -> None:
    assert words in assumption.changes


@pytest.mark.parametrize(
    ("scenario", "assumption"),
    [("other-labels", live_assumptions.REGIONS), ("prices-in-usd", live_assumptions.PRICES)],
)
async def test_what_cannot_be_placed_or_priced_is_not_offered(
    scenario: str, assumption: live_assumptions.Assumption
) -> None:
    offers = await Service(scenario).cloud.list_offers(BillingMode.ON_DEMAND)
    assert [it for it in offers if it.on_demand_usd is not None] == []
    says(assumption, "not offered")


@pytest.mark.parametrize(("scenario", "complete"), [("short-pages", True), ("page-no", False)])
async def test_long_lists(scenario: str, complete: bool) -> None:
    service = Service(scenario)
    service.live.world.stock("4090.16c62g", "us-ca-6", 1_000)
    service.live.world.page_size_max = 100
    for number in range(150):
        service.live.world.create(a_request(name=f"job-{number}"))
    listing = await service.cloud.list_machines()
    assert (listing.complete, len(listing.machines) == 150) == (complete, complete)
    says(live_assumptions.LONG_PAGES, "pages of 100")
    says(live_assumptions.PAGE_PARAMETER, "no list is complete")


async def test_an_unknown_machine_in_other_words_is_not_believed_gone() -> None:
    with pytest.raises(CloudRefused) as refused:
        await Service("other-not-found").cloud.get_machine(UNKNOWN_ID)
    assert not isinstance(refused.value, MachineGone)
    says(live_assumptions.NO_MACHINE, "never confirmed")


async def test_without_the_environment_the_name_still_tells_whose_it_is() -> None:
    machine = await Service("envs-hidden").listed_machine()
    assert (machine.env_tag, machine_tag(machine)) == ("", str(TAG))
    says(live_assumptions.TAG_ENV, "the name alone tells")


async def test_without_the_name_the_environment_tells_whose_it_is() -> None:
    machine = await Service("lost-name").listed_machine()
    assert str(TAG) not in machine.name
    assert machine_tag(machine) == str(TAG)
    says(live_assumptions.TAG_NAME, "the environment alone tells")


async def test_without_both_nothing_tells_whose_it_is() -> None:
    # What the service does then: tests/usecases/reconcile/test_advance.py, creates stop.
    assert machine_tag(await Service("tag-lost").listed_machine()) is None
    says(live_assumptions.TAG_NAME, "stops all creates")


async def test_a_list_without_endpoints_leaves_them_to_the_get() -> None:
    service = Service("endpoints-not-listed")
    listed = await service.listed_machine()
    got = await service.cloud.get_machine(listed.cloud_id)
    assert not any(it.endpoint for it in listed.ports)
    assert all(it.endpoint for it in got.ports)
    says(live_assumptions.LIST_ROW, "one GET more")


async def test_amounts_that_are_rounded_otherwise_change_nothing_where_exact_ones_are_sent() -> None:
    sums = []
    for scenario in ("calm", "bill-rounded-up"):
        service = Service(scenario)
        begin = service.live.clock.now()
        await service.listed_machine()
        await service.live.clock.sleep(2 * HOUR_S)
        charges = await service.billing.charges(begin, service.live.clock.now())
        sums.append(sum(it.amount_usd for it in charges))
    assert sums[0] == sums[1] > 0
