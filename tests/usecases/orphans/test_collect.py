"""Machines that nobody asked for: what is noted, what is removed, and what never is."""

from __future__ import annotations

import json
import math
import random
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.cloud.orphan import (
    COLLECTOR,
    OrphanEnding,
    OrphanOrder,
    OrphanVerdict,
)
from gpuherd.domain.errors import CloudRefused
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.rent_attempt import AttemptState, Tag, cloud_name
from gpuherd.ports.instance_port import Change
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import PRICE_UNITS_PER_USD
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.collect_orphans import CLOSED_LINES_RETENTION, COLLECTOR_BRAKED
from tests.support.builders import a_running_instance
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud
from tests.support.unmanaged_machines import (
    a_surplus_machine,
    alive,
    ledger,
    look,
    look_for,
    record,
    rent_outside_gpuherd,
    rent_tagged,
)

LATER_S = 31.0


@pytest.fixture
def look_every() -> timedelta:
    """As often as the service does: these tests know the seconds."""
    return timedelta(seconds=2)


async def test_other_peoples_machines_are_noted_with_their_price_and_left_alone(
    herd: Herd, world: World
) -> None:
    mine = await herd.settle(await herd.launch())
    console = rent_outside_gpuherd(world, "somebody-elses")
    other_gpuherd = rent_outside_gpuherd(world, cloud_name("theirs", Tag("ffffffff", "0" * 26, 1)))
    await look_for(herd, timedelta(minutes=10))
    lines = await ledger(herd)
    assert set(lines) == {console, other_gpuherd}
    assert {it.verdict for it in lines.values()} == {OrphanVerdict.FOREIGN}
    assert lines[console].hourly_usd == Decimal(world.machines[console].price) / PRICE_UNITS_PER_USD
    assert lines[console].confirmed_at is not None
    assert alive(herd) == {console, other_gpuherd, mine.cloud_id}
    assert world.calls[ApiEndpoint.DELETE.value] == 0


async def test_a_new_machine_of_others_is_told_once_on_the_account(herd: Herd, world: World) -> None:
    first = rent_outside_gpuherd(world, "one")
    await look(herd)
    second = rent_outside_gpuherd(world, "two")
    await look_for(herd, timedelta(minutes=2))
    told = await herd.events(ACCOUNT)
    assert [(it.sequence, it.type, it.details["cloudInstanceId"]) for it in told] == [
        (1, "instance.orphan_detected", first),
        (2, "instance.orphan_detected", second),
    ]


async def test_whoever_listens_to_the_whole_account_hears_of_a_stranger(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    # The store in memory has no endpoints.
    herd = Herd(tmp_path / "herd.db", world, clock)
    await herd.add_endpoint("https://example.com/all", ("instance.orphan_detected",))
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await herd.run_for(timedelta(minutes=2))
    herd.close()
    (told,) = [json.loads(body) for _, body in herd.receiver.got]
    assert told["type"] == "instance.orphan_detected"
    assert (told["data"]["cloudInstanceId"], told["data"]["verdict"]) == (stranger, "foreign")


@pytest.mark.proves("R1")
async def test_a_create_that_took_effect_long_after_it_was_given_up_is_removed(
    herd: Herd, world: World
) -> None:
    world.faults.add(Fault(FaultKind.LATE_COMMIT, count=1, seconds=1000))
    instance = await herd.launch(webhook_url="http://example.com/hook")
    instance = await herd.settle(instance)
    await herd.run_for(timedelta(minutes=4))
    assert world.calls[ApiEndpoint.CREATE.value] == 2
    assert len(world.machines) == 2
    assert [machine.id for machine in world.alive()] == [instance.cloud_id]
    assert await ledger(herd) == {}
    assert (await herd.get(instance.id)).status is Status.RUNNING
    (told,) = [json.loads(body) for _, body in herd.receiver.got if b"orphan_detected" in body]
    assert told["data"]["instanceId"] == instance.id
    assert told["data"]["orphan"]["cloudInstanceId"] in world.machines
    assert told["data"]["orphan"]["cloudInstanceId"] != instance.cloud_id


async def test_surplus_is_removed_only_after_a_second_sighting_long_enough_after_the_first(
    herd: Herd, world: World
) -> None:
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    await look(herd, 1)
    await look(herd, 28)
    assert alive(herd) == {surplus}
    assert (await ledger(herd))[surplus].confirmed_at is None
    await look(herd, 2)
    assert alive(herd) == set()
    entry = (await ledger(herd))[surplus]
    assert (entry.verdict, entry.order, entry.ordered_by) == (
        OrphanVerdict.SURPLUS,
        OrphanOrder.DELETE,
        COLLECTOR,
    )


async def test_a_removal_is_proven_before_the_line_is_closed_and_the_line_is_kept_for_a_month(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    await look_for(herd, timedelta(minutes=5))
    assert await ledger(herd) == {}
    entry = (await herd.orphans.entry(surplus)).orphan
    assert entry is not None
    assert entry.ending is OrphanEnding.GONE
    assert entry.gone_at is not None
    await clock.sleep((CLOSED_LINES_RETENTION - timedelta(minutes=1)).total_seconds() - 300)
    assert await herd.forget_orphans() == 0
    await clock.sleep(600)
    assert await herd.forget_orphans() == 1
    assert (await herd.orphans.entry(surplus)).orphan is None


async def test_a_surplus_machine_that_only_the_lists_have_lost_stays_in_the_ledger(
    herd: Herd, world: World
) -> None:
    keeper = await herd.settle(await herd.launch())
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.DELETE,)))
    await look(herd, LATER_S)
    # It is hidden from the lists, not gone: a question finds it.
    world.machines[surplus].unlisted_until = world.now() + 600
    world.all_listed_at = world.now() + 600
    await look_for(herd, timedelta(minutes=5))
    assert surplus in await ledger(herd)
    assert alive(herd) == {surplus, keeper.cloud_id}


class RefusingCloud(SimulatedCloud):
    """Refuses to remove anything."""

    asked = 0

    async def delete_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        self.asked += 1
        raise CloudRefused("a subscription cannot be released before its end")


async def test_a_removal_that_is_refused_is_asked_for_again_ever_more_seldom(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    cloud = RefusingCloud(world)
    herd = Herd(tmp_path / "refusing.db", world, clock, cloud=cloud)
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    await look(herd, LATER_S)
    assert cloud.asked == 1
    await look_for(herd, timedelta(minutes=1))
    assert cloud.asked == 2
    await look_for(herd, timedelta(hours=1))
    assert 8 <= cloud.asked <= 12
    assert "subscription" in (await ledger(herd))[surplus].error
    herd.close()


async def test_too_many_at_once_are_not_removed_until_a_person_has_looked(herd: Herd, world: World) -> None:
    many = {await a_surplus_machine(herd, n) for n in range(3)}
    await look(herd)
    await look(herd, LATER_S)
    await look_for(herd, timedelta(minutes=5))
    assert alive(herd) == many
    reason = await herd.flags.get(COLLECTOR_BRAKED)
    assert reason is not None
    assert "3 machines" in reason
    released = await herd.resume_collector("operator")
    assert {it.cloud_id for it in released} == many
    await look(herd, 10)
    assert alive(herd) == set()
    assert await herd.flags.get(COLLECTOR_BRAKED) is None
    await look_for(herd, timedelta(minutes=3))
    assert await ledger(herd) == {}


async def test_a_trickle_within_one_cycle_counts_like_a_flood(herd: Herd) -> None:
    for n in range(4):
        await a_surplus_machine(herd, n)
        await look(herd, 12)
    await look_for(herd, timedelta(minutes=1), every_s=5)
    assert await herd.flags.get(COLLECTOR_BRAKED) is not None
    assert len(alive(herd)) == 2


async def test_a_large_herd_may_lose_a_tenth(herd: Herd) -> None:
    for n in range(100, 140):
        await herd.instances.add(Change(a_running_instance(n)))
    many = [await a_surplus_machine(herd, n) for n in range(4)]
    await look(herd)
    await look(herd, LATER_S)
    assert not set(many) & alive(herd)
    assert await herd.flags.get(COLLECTOR_BRAKED) is None


async def test_to_resume_without_a_brake_orders_nothing(herd: Herd) -> None:
    surplus = await a_surplus_machine(herd, 1)
    herd.auto_delete = False
    await look(herd)
    await look(herd, LATER_S)
    assert await herd.resume_collector("operator") == ()
    assert (await ledger(herd))[surplus].order is None


async def test_while_the_collector_only_reports_nothing_is_removed(herd: Herd) -> None:
    herd.auto_delete = False
    surplus = await a_surplus_machine(herd, 1)
    await look_for(herd, timedelta(minutes=5))
    assert alive(herd) == {surplus}
    assert (await ledger(herd))[surplus].verdict is OrphanVerdict.SURPLUS


async def test_a_machine_with_our_tag_and_no_record_is_reported_and_never_removed(herd: Herd) -> None:
    unrecorded = rent_tagged(herd, 1)
    await look_for(herd, timedelta(minutes=10))
    assert alive(herd) == {unrecorded}
    entry = (await ledger(herd))[unrecorded]
    assert (entry.verdict, entry.order) == (OrphanVerdict.UNRECORDED, None)


@pytest.mark.parametrize("state", [AttemptState.SENT, AttemptState.UNKNOWN])
async def test_the_machine_of_a_call_without_an_outcome_is_no_orphan(herd: Herd, state: AttemptState) -> None:
    await record(herd, 1, state, status=Status.CREATING, goal=Goal.RUNNING, settled=False)
    awaited = rent_tagged(herd, 1)
    await look_for(herd, timedelta(minutes=2))
    assert await ledger(herd) == {}
    assert alive(herd) == {awaited}


@pytest.mark.proves("R6")
async def test_the_machine_of_a_refused_call_is_surplus(herd: Herd) -> None:
    """Window R6: the cloud refused a create and made a machine all the same."""
    await record(herd, 1, AttemptState.REJECTED, status=Status.FAILED, goal=Goal.RUNNING)
    rent_tagged(herd, 1)
    await look(herd)
    await look(herd, LATER_S)
    assert alive(herd) == set()


async def test_a_machine_without_our_tag_under_the_id_of_one_that_we_had_is_foreign(
    herd: Herd, world: World
) -> None:
    """The cloud may give an id out again."""
    reused = rent_outside_gpuherd(world, "somebody-elses")
    await record(herd, 1, AttemptState.BOUND, cloud_id=reused)
    await look_for(herd, timedelta(minutes=5))
    assert (await ledger(herd))[reused].verdict is OrphanVerdict.FOREIGN
    assert alive(herd) == {reused}


async def test_a_machine_that_outlives_its_deleted_instance_is_surplus(herd: Herd, world: World) -> None:
    survivor = rent_tagged(herd, 1)
    await record(herd, 1, AttemptState.BOUND, cloud_id=survivor)
    await look(herd)
    assert (await ledger(herd))[survivor].finding.instance_id == a_running_instance(1).id
    await look(herd, LATER_S)
    assert alive(herd) == set()


async def test_a_machine_that_comes_back_after_its_release_is_surplus(herd: Herd) -> None:
    survivor = rent_tagged(herd, 1)
    await record(herd, 1, AttemptState.BOUND, status=Status.FAILED, goal=Goal.RUNNING, cloud_id=survivor)
    await look(herd)
    await look(herd, LATER_S)
    assert alive(herd) == set()


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Status.FAILED, "goal": Goal.RUNNING, "on_failure": OnFailure.KEEP},
        {"status": Status.FAILED, "goal": Goal.RUNNING, "releasing": True, "settled": False},
        {"status": Status.RUNNING, "goal": Goal.RUNNING},
        {"status": Status.EXITED, "goal": Goal.STOPPED},
        {"status": Status.DELETING, "goal": Goal.DELETED, "settled": False},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
async def test_a_machine_that_an_instance_still_counts_on_is_no_orphan(
    herd: Herd, changes: dict[str, object]
) -> None:
    bound = rent_tagged(herd, 1)
    await record(herd, 1, AttemptState.BOUND, cloud_id=bound, **changes)
    await look_for(herd, timedelta(minutes=2))
    assert await ledger(herd) == {}
    assert alive(herd) == {bound}


class ListRacingCloud(SimulatedCloud):
    """While the list is made, somebody's create goes through: its record comes after the list began."""

    herd: Herd
    machine = ""

    async def list_machines(self) -> Listing:
        if not self.machine:
            self.machine = rent_tagged(self.herd, 1)
            listing = await super().list_machines()
            await record(self.herd, 1, AttemptState.BOUND, status=Status.RUNNING, cloud_id=self.machine)
            return listing
        return await super().list_machines()


async def test_records_are_read_after_the_list_so_a_young_machine_is_never_taken_for_an_orphan(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    cloud = ListRacingCloud(world)
    herd = cloud.herd = Herd(tmp_path / "race.db", world, clock, cloud=cloud)
    await look(herd)
    assert (await herd.orphans.entry(cloud.machine)).orphan is None
    assert await herd.events(ACCOUNT) == ()
    herd.close()


@pytest.mark.proves("F14")
@pytest.mark.parametrize("fault", [FaultKind.EMPTY_LIST, FaultKind.PARTIAL_LIST])
async def test_a_list_that_is_not_believed_changes_nothing(
    herd: Herd, world: World, fault: FaultKind
) -> None:
    await herd.settle(await herd.launch())
    await herd.run_for(timedelta(minutes=6))
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    before = herd.rows(herd.tables.orphan)
    world.faults.add(Fault(fault, style="wrong_total" if fault is FaultKind.PARTIAL_LIST else ""))
    rent_outside_gpuherd(world, "new")
    await look(herd, LATER_S)
    assert herd.observer.latest is not None
    assert not herd.observer.latest.believable
    assert herd.rows(herd.tables.orphan) == before
    assert surplus in alive(herd)


@pytest.mark.parametrize("state", ["OPEN", "HALF_OPEN"])
async def test_while_the_cloud_is_in_trouble_nothing_is_collected(herd: Herd, state: str) -> None:
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    herd.breaker_state = state
    await look_for(herd, timedelta(minutes=5))
    assert alive(herd) == {surplus}
    assert (await ledger(herd))[surplus].confirmed_at is None


async def test_one_list_is_one_sighting_however_often_it_is_looked_at(herd: Herd, clock: FakeClock) -> None:
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    for _ in range(10):
        await clock.sleep(LATER_S)
        assert not await herd.collect()
    assert alive(herd) == {surplus}


async def test_a_machine_of_others_that_vanishes_leaves_the_ledger_and_comes_back_into_it(
    herd: Herd, world: World
) -> None:
    console = rent_outside_gpuherd(world, "somebody-elses")
    await look(herd)
    machine = world.machines[console]
    machine.unlisted_until = world.all_listed_at = world.now() + 60
    await look_for(herd, timedelta(seconds=50))
    assert await ledger(herd) == {}
    await look(herd, 60)
    assert set(await ledger(herd)) == {console}


async def test_a_machine_that_its_instance_claims_leaves_the_ledger(herd: Herd) -> None:
    unrecorded = rent_tagged(herd, 1)
    await look(herd)
    assert set(await ledger(herd)) == {unrecorded}
    await record(herd, 1, AttemptState.BOUND, status=Status.RUNNING, cloud_id=unrecorded)
    await look(herd, 10)
    entry = (await herd.orphans.entry(unrecorded)).orphan
    assert entry is not None
    assert entry.ending is OrphanEnding.CLAIMED


async def test_machines_of_others_that_rest_cost_no_work(herd: Herd, world: World) -> None:
    for n in range(20):
        rent_outside_gpuherd(world, f"somebody-elses-{n}")
    await look(herd)
    await look(herd, LATER_S)
    assert len(await ledger(herd)) == 20
    assert await herd.orphans.candidates() == ()


async def test_the_ledger_and_the_comprehensive_list_agree_on_who_is_foreign(
    herd: Herd, world: World
) -> None:
    await herd.settle(await herd.launch())
    rent_outside_gpuherd(world, "somebody-elses")
    rent_outside_gpuherd(world, cloud_name("theirs", Tag("ffffffff", "0" * 26, 1)))
    rent_tagged(herd, 1)
    await a_surplus_machine(herd, 2)
    await look(herd)
    shown = json.loads(await herd.comprehensive())["instances"]
    foreign = {it["cloudInstanceId"] for it in shown if it["ownership"] == "foreign"}
    ours = {it["cloudInstanceId"] for it in shown if it["source"] == "novita"} - foreign
    lines = await ledger(herd)
    assert {it.cloud_id for it in lines.values() if it.verdict is OrphanVerdict.FOREIGN} == foreign
    assert {it.cloud_id for it in lines.values() if it.verdict is not OrphanVerdict.FOREIGN} == ours


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 4))])
async def test_creates_that_take_effect_after_every_patience_end_with_one_machine_for_each_wish(
    tmp_path: Path, seed: int
) -> None:
    """Window R1, forced open: the surplus lives for a short while, and only the surplus is removed."""
    clock = FakeClock(auto=True)
    world = World(clock, random.Random(seed))
    world.faults.add(
        Fault(FaultKind.LATE_COMMIT, count=2, seconds=190 + 10 * seed),
        Fault(FaultKind.LIST_LAG, probability=0.3, seconds=5),
    )
    settling = SettlingPolicy(timedelta(seconds=36))
    herd = Herd(tmp_path / f"{seed}.db", world, clock, seed=seed, settling=settling)
    ended = [
        await herd.settle(it, timedelta(hours=4)) for it in [await herd.launch(f"job-{n}") for n in (1, 2)]
    ]
    await herd.run_for(timedelta(minutes=5))
    assert len(world.machines) == 4, f"seed {seed}"
    assert alive(herd) == {it.cloud_id for it in ended}, f"seed {seed}"
    assert await ledger(herd) == {}
    herd.close()
