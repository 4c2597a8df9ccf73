"""No lost answer and no crash rents twice or forgets: the protocol, fault by fault."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.cloud.template import CreateCall
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud

CREATES = ApiEndpoint.CREATE.value


async def states(herd: Herd, instance: Instance) -> list[AttemptState]:
    return [it.state for it in await herd.attempts(instance.id)]


@pytest.mark.proves("F5", "F6")
@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1),
        Fault(FaultKind.ERROR_AFTER_COMMIT, count=1, status=502),
        Fault(FaultKind.LATE_COMMIT, count=1, seconds=100),
        Fault(FaultKind.HANG, count=1, seconds=120, endpoints=(ApiEndpoint.CREATE,)),
        *(
            Fault(FaultKind.GARBAGE, count=1, style=style)
            for style in ("broken_json", "html", "empty", "empty_id", "number_id", "null_id", "cut", "list")
        ),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.style}",
)
async def test_a_create_without_a_clear_answer_is_found_again_and_not_repeated(
    herd: Herd, world: World, fault: Fault
) -> None:
    world.faults.add(fault)
    instance = await herd.settle(await herd.launch())
    assert instance.status is Status.RUNNING
    assert world.calls[CREATES] == 1
    assert [machine.id for machine in world.alive()] == [instance.cloud_id]
    assert await states(herd, instance) == [AttemptState.BOUND]


@pytest.mark.proves("F5")
async def test_a_create_that_had_no_effect_is_repeated_only_after_the_settling_time(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    world.faults.add(Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1))
    instance = await herd.launch()
    # No machine of ours can vouch for a list yet, so it takes five times as long.
    await herd.run_for(timedelta(seconds=890))
    assert world.calls[CREATES] == 1
    instance = await herd.settle(instance)
    assert world.calls[CREATES] == 2
    assert instance.status is Status.RUNNING
    assert await states(herd, instance) == [AttemptState.ABANDONED, AttemptState.BOUND]


async def test_with_a_witness_the_settling_time_is_shorter(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch("witness"))
    await herd.run_for(timedelta(minutes=6))
    world.faults.add(Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1))
    second = await herd.launch("second")
    await herd.run_for(timedelta(seconds=175))
    assert world.calls[CREATES] == 2
    await herd.run_for(timedelta(seconds=60))
    assert world.calls[CREATES] == 3
    assert (await herd.settle(second)).status is Status.RUNNING


@pytest.mark.proves("F14")
async def test_an_outage_that_answers_with_empty_lists_is_not_believed(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch("witness"))
    await herd.run_for(timedelta(minutes=6))
    world.faults.add(
        Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1), Fault(FaultKind.EMPTY_LIST, for_s=600)
    )
    second = await herd.launch("second")
    await herd.run_for(timedelta(seconds=590))
    assert world.calls[CREATES] == 2
    assert (await herd.settle(second)).status is Status.RUNNING
    assert len(world.alive()) == 2
    assert (await herd.instances.find_named("witness"))[0].status is Status.RUNNING


async def test_empty_lists_do_not_make_us_forget_our_only_young_machine(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SLOW_PULL, factor=5))
    instance = await herd.launch()
    await herd.run_for(timedelta(seconds=10))
    world.faults.add(Fault(FaultKind.EMPTY_LIST, for_s=60))
    instance = await herd.settle(instance)
    assert instance.status is Status.RUNNING
    assert [machine.id for machine in world.alive()] == [instance.cloud_id]


async def test_our_only_machine_is_missed_when_it_vanishes(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    await herd.run_for(timedelta(minutes=10))
    world.delete(instance.cloud_id or "")
    await herd.run_for(timedelta(minutes=3))
    gone = await herd.get(instance.id)
    assert gone.status is Status.FAILED
    assert gone.last_error is not None
    assert gone.last_error.code == "INSTANCE_VANISHED"


@pytest.mark.proves("F19")
async def test_a_wall_clock_that_jumps_ahead_does_not_shorten_the_settling_time(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    await herd.settle(await herd.launch("witness"))
    await herd.run_for(timedelta(minutes=6))
    before = world.calls[CREATES]
    world.faults.add(Fault(FaultKind.LATE_COMMIT, count=1, seconds=150))
    second = await herd.launch("second")
    await herd.run_for(timedelta(seconds=30))
    clock.jump_wall(600)
    second = await herd.settle(second)
    assert second.status is Status.RUNNING
    assert world.calls[CREATES] == before + 1
    assert len(world.alive()) == 2


@pytest.mark.proves("F13")
@pytest.mark.parametrize(
    "style",
    [
        "missing_page",
        pytest.param("duplicated_page", marks=pytest.mark.long),
        "wrong_total",
        pytest.param("short_page", marks=pytest.mark.long),
    ],
)
async def test_a_list_whose_pages_do_not_fit_together_proves_no_absence(
    herd: Herd, world: World, style: str
) -> None:
    # Only an account with more than one page can show pages that do not fit together.
    for n in range(120):
        await foreign_machine(herd, f"somebody-elses-{n}")
    await herd.look()
    before = world.calls[CREATES]
    world.faults.add(
        Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1),
        Fault(FaultKind.LIST_LAG, seconds=1000),
        Fault(FaultKind.PARTIAL_LIST, style=style),
    )
    await herd.launch()
    await herd.run_for(timedelta(seconds=990))
    assert world.calls[CREATES] == before + 1


@pytest.mark.proves("F13")
async def test_a_slow_list_within_the_settling_time_does_not_double(herd: Herd, world: World) -> None:
    world.faults.add(
        Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1), Fault(FaultKind.LIST_LAG, seconds=120)
    )
    instance = await herd.settle(await herd.launch())
    assert world.calls[CREATES] == 1
    assert [machine.id for machine in world.alive()] == [instance.cloud_id]


async def test_a_machine_that_lost_its_name_is_found_by_the_tag_in_its_environment(
    herd: Herd, world: World
) -> None:
    world.faults.add(
        Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1), Fault(FaultKind.DROP_NAME, style="replace")
    )
    instance = await herd.settle(await herd.launch())
    assert world.calls[CREATES] == 1
    assert [machine.id for machine in world.alive()] == [instance.cloud_id]


async def test_a_look_alike_name_is_not_adopted(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1))
    instance = await herd.launch("job")
    await herd.run_for(timedelta(seconds=5))
    (attempt,) = await herd.attempts(instance.id)
    decoys = [attempt.tag, f"x--{attempt.tag}x", f"x--{attempt.tag}-1", f"{attempt.tag}--x", "job"]
    foreign = [await foreign_machine(herd, name) for name in decoys]
    instance = await herd.settle(instance)
    assert instance.cloud_id not in foreign
    assert len(world.alive()) == len(decoys) + 1


async def test_a_deadline_during_an_unknown_create_fails_the_instance_but_goes_on_looking(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    herd = Herd(tmp_path / "short.db", world, clock, max_wait=timedelta(seconds=60))
    world.faults.add(
        Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, count=1), Fault(FaultKind.LIST_LAG, seconds=150)
    )
    instance = await herd.launch()
    await herd.run_for(timedelta(seconds=70))
    failed = await herd.get(instance.id)
    assert failed.status is Status.FAILED
    assert not failed.settled
    instance = await herd.settle(instance)
    # Found late, and given back: nobody pays for a machine that nobody uses.
    assert instance.cloud_id is not None
    assert world.alive() == []
    herd.close()


class DyingCloud(SimulatedCloud):
    """Kills the process around one create call."""

    def __init__(self, world: World, *, before: bool):
        super().__init__(world)
        self._before = before
        self.dies = True

    async def create_machine(self, order: CreateCall) -> str:
        if self.dies and self._before:
            raise Killed
        cloud_id = await super().create_machine(order)
        if self.dies:
            raise Killed
        return cloud_id


class Killed(BaseException):
    """What kill -9 looks like from inside: nothing after it runs."""


@pytest.mark.proves("F3", "F4")
@pytest.mark.parametrize("before", [True, False], ids=["before-the-call", "after-the-call"])
async def test_a_crash_around_the_call_leaves_one_machine_that_we_know(
    tmp_path: Path, world: World, clock: FakeClock, look_every: timedelta, before: bool
) -> None:
    path = tmp_path / "crash.db"
    first = Herd(path, world, clock, cloud=DyingCloud(world, before=before))
    instance = await first.launch()
    with pytest.raises(Killed):
        await first.run_for(timedelta(seconds=5))
    first.close()
    again = Herd(path, world, clock, seed=2, look_every=look_every)
    instance = await again.settle(instance)
    assert instance.status is Status.RUNNING
    assert [machine.id for machine in world.alive()] == [instance.cloud_id]
    assert world.calls[CREATES] == 1
    again.close()


async def test_a_delivery_that_was_made_but_not_noted_is_made_again_with_the_same_bytes(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    herd = Herd(tmp_path / "hooks.db", world, clock)
    refusals = iter([True, True])
    herd.receiver.accepts = lambda _: not next(refusals, False)
    await herd.settle(await herd.launch(webhook_url="http://example.com/hook"), timedelta(hours=2))
    await herd.run_for(timedelta(hours=1))
    bodies: dict[str, set[bytes]] = {}
    for event_id, body in herd.receiver.tried:
        bodies.setdefault(event_id, set()).add(body)
    assert all(len(versions) == 1 for versions in bodies.values())
    assert sorted(herd.webhooks()) == sorted(
        ["instance.created", "instance.starting", "instance.running", "instance.ready"]
    )
    herd.close()


async def foreign_machine(herd: Herd, name: str) -> str:
    """Rent a machine past gpuherd, as somebody at the console would."""
    offers = [it for it in await herd.offers(herd.wish.billing_mode) if it.available]
    # Spread over all offers, so that no stock runs out.
    offer = offers[len(herd.world.machines) % len(offers)]
    template = await herd.run_spec(herd.wish)
    order = CreateCall(name, "", offer, template, 1, 60, herd.wish.billing_mode)
    return await SimulatedCloud(herd.world).create_machine(order)


@pytest.mark.parametrize("seed", range(int(os.environ.get("SEEDS", "6"))))
async def test_seeded_storms_end_with_one_machine_for_each_wish(tmp_path: Path, seed: int) -> None:
    clock = FakeClock(auto=True)
    world = World(clock, random.Random(seed))
    world.faults.add(
        Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, probability=0.3, for_s=600),
        Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, probability=0.2, for_s=600),
        Fault(FaultKind.ERROR_AFTER_COMMIT, probability=0.2, status=500, for_s=600),
        Fault(FaultKind.OUTAGE, probability=0.1, for_s=600),
        Fault(FaultKind.LIST_LAG, probability=0.3, seconds=60, for_s=600),
    )
    # Bad luck alone must not end a wish: half of the creates get no answer.
    herd = Herd(
        tmp_path / f"{seed}.db",
        world,
        clock,
        seed=seed,
        max_wait=timedelta(hours=3),
        unknown_outcomes_max=20,
    )
    wishes = [await herd.launch(f"job-{n}") for n in range(3)]
    ended = [await herd.settle(it, timedelta(hours=4)) for it in wishes]
    assert [it.status for it in ended] == [Status.RUNNING] * 3, f"seed {seed}"
    assert sorted(m.id for m in world.alive()) == sorted(it.cloud_id or "" for it in ended), f"seed {seed}"
    herd.close()
