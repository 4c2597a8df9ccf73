"""The paid checks: all pass on the documented Novita, each difference is told, and nothing is left behind."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.instance.rent_attempt import Tag, cloud_name
from gpuherd.ops import live_assumptions
from gpuherd.ops.doctor_results import Agreement, CannotLook, LiveFinding
from gpuherd.ops.live_machine_checks import MachineStory, judge_story
from gpuherd.ops.live_rental_checks import PaidChecks, look_at_bill
from gpuherd.ops.live_rentals import INSTANCE_NAME, RentalState, RentPlan
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.simulated_request import ExposedPort
from tests.ops.doctor.live.support import LiveWorld
from tests.simulator.builders import a_request

SETTLE_S = 180.0
PLAN = RentPlan(("RTX 4090 24GB",), "101", Decimal("0.20"))


class SimulatedRentals:
    """A server that does at once what it is asked."""

    def __init__(self, live: LiveWorld) -> None:
        self.world = live.world
        self.machine: SimulatedMachine | None = None
        self.renewed: list[timedelta] = []
        self.refuses: str | None = None

    async def check(self) -> None: ...

    async def create(self, plan: RentPlan) -> RentalState:
        if self.refuses:
            raise CannotLook(self.refuses)
        tag = Tag("abcdefgh", "0" * 26, 1, "abcdef")
        request = a_request(
            name=cloud_name(INSTANCE_NAME, tag),
            billing_mode="spot",
            envs=(("GPUHERD_TAG", str(tag)),),
            ports=(ExposedPort(8080, "http"), ExposedPort(9000, "tcp")),
        )
        self.machine = self.world.machines[self.world.create(request)]
        return await self.get("inst_1")

    async def get(self, rental_id: str) -> RentalState:
        assert self.machine is not None
        status = self.machine.status(self.world.now())
        return RentalState("inst_1", status, self.machine.id, Decimal("0.175"), "")

    async def stop(self, rental_id: str) -> None:
        assert self.machine is not None
        self.world.stop(self.machine.id)

    async def start(self, rental_id: str) -> None:
        assert self.machine is not None
        self.world.start(self.machine.id)

    async def renew(self, rental_id: str, lease: timedelta) -> None:
        self.renewed.append(lease)

    async def remove_all(self) -> int:
        if self.machine is not None:
            self.world.delete(self.machine.id)
        return 1

    async def creates_blocked(self) -> str | None:
        return None


class LateRentals(SimulatedRentals):
    """A server that looks at the cloud once a minute, and refuses what does not fit what it has seen."""

    def __init__(self, live: LiveWorld) -> None:
        super().__init__(live)
        self._looked_s = -math.inf
        self._seen = "creating"

    async def get(self, rental_id: str) -> RentalState:
        now_s = self.world.now()
        known = await super().get(rental_id)
        if now_s - self._looked_s >= 60:
            self._looked_s, self._seen = now_s, known.status
        return replace(known, status=self._seen)

    async def stop(self, rental_id: str) -> None:
        self._refuse_unless("running")
        await super().stop(rental_id)

    async def start(self, rental_id: str) -> None:
        self._refuse_unless("exited")
        await super().start(rental_id)

    def _refuse_unless(self, status: str) -> None:
        if self._seen != status:
            raise CannotLook(f"it is {self._seen}")


async def rented(live: LiveWorld, rentals: SimulatedRentals) -> MachineStory:
    limit = timedelta(seconds=2 * SETTLE_S)
    return await PaidChecks(live.calls, rentals, PLAN, limit, lambda _: None).run()


async def findings(scenario: str) -> dict[str, LiveFinding]:
    """Make the paid checks, and look at the bill the next day."""
    live = LiveWorld(scenario)
    story = await rented(live, SimulatedRentals(live))
    assert live.world.alive() == []
    assert story.machine is not None
    found = judge_story(story, SETTLE_S)
    await live.clock.sleep(86_400)
    found.append(await look_at_bill(live.calls, story.machine))
    return {it.check: it for it in found}


async def test_on_the_documented_novita_everything_is_as_assumed() -> None:
    found = await findings("calm")
    assert set(found) == {it.check for it in live_assumptions.PAID}
    # Metrics come a minute late, and the machine did not run for so long.
    assert found.pop("metrics.machine").verdict is Agreement.NOT_SEEN
    assert {check: it.seen for check, it in found.items() if it.verdict is not Agreement.AS_ASSUMED} == {}


@pytest.mark.parametrize(
    ("scenario", "check"),
    [
        ("lost-name", "tag.name"),
        ("envs-hidden", "tag.environment"),
        ("list-very-late", "list.lag"),
        ("endpoints-not-listed", "list.row"),
        ("no-stamps", "stamps.started"),
        ("no-instance-price", "price.instance"),
        ("ports-kept", "start.ports"),
        ("other-not-found", "delete.gone"),
        ("bill-by-minute", "bill.span"),
        ("wrong-bill", "bill.span"),
    ],
)
async def test_each_difference_is_told_and_nothing_else(scenario: str, check: str) -> None:
    found = await findings(scenario)
    assert [it.check for it in found.values() if it.verdict is Agreement.DIFFERS] == [check]
    assert found[check].changes


async def test_a_list_that_is_late_asks_for_a_longer_settling_time() -> None:
    (setting,) = (await findings("list-very-late"))["list.lag"].settings
    name, _, seconds = setting.partition("=")
    assert name == "GPUHERD_CREATE_SETTLE"
    assert 430 <= int(seconds) <= 480


async def test_a_server_that_knows_later_is_waited_for() -> None:
    live = LiveWorld("calm")
    story = await rented(live, LateRentals(live))
    assert not story.broke_off
    assert story.row_restarted is not None


async def test_the_lease_is_renewed_while_it_goes_on_and_never_for_longer() -> None:
    live = LiveWorld("slow-pull")
    rentals = SimulatedRentals(live)
    await rented(live, rentals)
    assert len(rentals.renewed) >= 2
    assert set(rentals.renewed) == {PLAN.lease}


async def test_what_breaks_off_is_removed_all_the_same_and_says_why() -> None:
    live = LiveWorld("pull-failure")
    rentals = SimulatedRentals(live)
    story = await rented(live, rentals)
    assert "pull" in story.broke_off
    assert live.world.alive() == []
    found = {it.check: it for it in judge_story(story, SETTLE_S)}
    assert found["start.ports"].verdict is Agreement.NOT_SEEN
    assert found["start.ports"].seen == story.broke_off


async def test_where_nothing_can_be_rented_the_free_refusal_is_still_told() -> None:
    live = LiveWorld()
    rentals = SimulatedRentals(live)
    rentals.refuses = "the server rents nothing"
    story = await rented(live, rentals)
    assert story.machine is None
    found = {it.check: it for it in judge_story(story, SETTLE_S)}
    assert found["refusal.create"].verdict is Agreement.AS_ASSUMED
    assert live.world.machines == {}


async def test_rows_that_are_not_there_yet_are_asked_for_tomorrow() -> None:
    live = LiveWorld()
    story = await rented(live, SimulatedRentals(live))
    assert story.machine is not None
    found = await look_at_bill(live.calls, story.machine)
    assert (found.verdict, "tomorrow" in found.seen) == (Agreement.NOT_SEEN, True)


def test_the_sum_covers_every_step_and_the_lease_after_a_kill() -> None:
    whole = PLAN.boot_limit + 4 * PLAN.step_limit + PLAN.lease
    assert PLAN.usd_max >= PLAN.price_max * Decimal(whole.total_seconds()) / 3600
    assert PLAN.usd_max < Decimal("0.15")
