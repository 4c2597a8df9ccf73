"""Machines that the cloud takes back, and instances that take over from one another."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.api_key import ADMIN, Limits
from gpuherd.domain.errors import QuotaExceeded
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lease import EndAction, Lease, Terms
from gpuherd.domain.instance.lineage import OnReclaim
from gpuherd.domain.money.budget import AtLimit, BudgetScope
from gpuherd.domain.money.period import BudgetPeriod
from gpuherd.ports.instance_port import Change
from gpuherd.ports.telemetry_port import NullMeter
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.instances.change_lease import LeaseOrder
from gpuherd.usecases.money.manage_budgets import BudgetRequest
from tests.support.budgets import USD
from tests.support.builders import a_running_instance
from tests.support.herd import Herd

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SECOND = timedelta(seconds=1)
HOOK = "http://example.com/hook"


async def usable(herd: Herd, **wish: Any) -> Instance:
    return await herd.settle(await herd.launch(**{"on_reclaim": OnReclaim.REPLACE, **wish}))


def announce(world: World, it: Instance, seconds: float = 600) -> None:
    """Let the cloud take a machine back, and say when with the notice."""
    machine = world.reclaim(it.cloud_id or "", seconds)
    assert machine.reclaim is not None
    machine.reclaim = machine.reclaim._replace(time_shown_at=machine.reclaim.notice_at)


async def heir_of(herd: Herd, it: Instance) -> Instance:
    chain = (await herd.get(it.id)).chain
    assert chain is not None and chain.heir is not None, "it has an heir"
    return await herd.get(chain.heir.id)


async def coming(herd: Herd, it: Instance) -> Instance:
    """Run until an instance has an heir, which cannot be used yet."""
    for _ in range(600):
        chain = (await herd.get(it.id)).chain
        if chain is not None and chain.heir is not None:
            return await herd.get(chain.heir.id)
        await herd.run_for(SECOND)
    raise AssertionError("it has no heir")


async def members(herd: Herd, it: Instance) -> list[Instance]:
    return list(await herd.instances.of_lineage(it.id))


def running(world: World) -> int:
    return sum(it.status(world.now()) == "running" for it in world.machines.values())


@pytest.mark.proves("S1")
async def test_an_heir_is_usable_before_the_loss_and_then_the_old_one_goes(herd: Herd, world: World) -> None:
    old = await usable(herd, webhook_url=HOOK, labels={"team": "red"})
    world.reclaim(old.cloud_id or "", 3600)
    await herd.run_for(44 * MINUTE)
    assert (await herd.get(old.id)).chain is None, "late: an earlier start only means more of them"
    await herd.run_for(10 * MINUTE)
    young, gone = await heir_of(herd, old), await herd.get(old.id)
    assert young.usable
    assert (gone.goal, gone.status) == (Goal.DELETED, Status.DELETED)
    assert running(world) == 1
    same = ("name", "owner", "webhook_url", "labels", "terms", "replacement")
    assert {it: getattr(young, it) for it in same} == {it: getattr(old, it) for it in same}
    assert young.chain is not None
    assert (young.lineage, young.chain.link, young.chain.replaces) == (old.id, 2, old.id)
    told = [it for it in herd.webhooks() if "replac" in it]
    assert told == ["instance.replacing", "instance.replaced"], "each of them once"
    bodies = [json.loads(body)["data"] for _, body in herd.receiver.got]
    assert {it["lineage"] for it in bodies} == {old.id}


async def test_each_handover_is_counted_with_its_gap(
    herd: Herd, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, float | None]] = []
    monkeypatch.setattr(
        NullMeter, "replacement", lambda _, outcome, gap_s=None: counted.append((outcome, gap_s))
    )
    old = await usable(herd)
    announce(world, old)
    await herd.run_for(5 * MINUTE)
    assert counted == [("warm", 0.0)]
    young = await heir_of(herd, old)
    world.reclaim(young.cloud_id or "", 0)
    await herd.run_for(5 * MINUTE)
    ((_, _), (outcome, gap_s)) = counted
    assert outcome == "cold" and gap_s is not None and 0 < gap_s < 300


async def test_a_reclaim_without_a_policy_makes_no_heir(herd: Herd, world: World) -> None:
    old = await usable(herd, on_reclaim=OnReclaim.NONE)
    announce(world, old, 300)
    await herd.run_for(20 * MINUTE)
    assert (await herd.get(old.id)).status is Status.EXITED
    assert len(world.machines) == 1


@pytest.mark.proves("S1")
async def test_what_was_lost_without_warning_is_replaced_at_once(herd: Herd, world: World) -> None:
    old = await usable(herd)
    world.reclaim(old.cloud_id or "", 1)
    await herd.run_for(5 * MINUTE)
    assert (await heir_of(herd, old)).usable
    assert (await herd.get(old.id)).status is Status.DELETED


@pytest.mark.proves("S1")
async def test_one_list_that_shows_a_notice_is_not_enough(herd: Herd, world: World) -> None:
    old = await usable(herd)
    announce(world, old)
    while (await herd.get(old.id)).reclaim is None:
        await herd.run_for(SECOND)
    await herd.run_jobs_for(HOUR / 12)
    assert (await herd.get(old.id)).chain is None
    assert (await coming(herd, old)).goal is Goal.RUNNING


@pytest.mark.proves("S4")
async def test_a_notice_that_is_withdrawn_takes_the_heir_away(herd: Herd, world: World) -> None:
    old = await usable(herd)
    world.faults.add(Fault(FaultKind.SLOW_PULL, factor=20, count=1))
    announce(world, old)
    young = await coming(herd, old)
    world.machines[old.cloud_id or ""].reclaim = None
    await herd.run_for(5 * MINUTE)
    assert (await herd.get(young.id)).status is Status.DELETED
    kept = await herd.get(old.id)
    assert kept.usable
    assert kept.chain is not None and kept.chain.heir is None
    assert running(world) == 1
    announce(world, old)
    await herd.run_for(5 * MINUTE)
    assert [it.chain and it.chain.link for it in await members(herd, old)] == [1, 2, 3]
    assert running(world) == 1


@pytest.mark.proves("S3")
@pytest.mark.parametrize("end", ["stop", "delete"])
async def test_a_stop_or_delete_takes_the_heir_with_it(herd: Herd, world: World, end: str) -> None:
    old = await usable(herd)
    announce(world, old)
    young = await coming(herd, old)
    await getattr(herd, end)(old.name)
    assert (await herd.get(young.id)).goal is Goal.DELETED, "in the same transaction"
    await herd.run_for(20 * MINUTE)
    assert running(world) == 0
    assert (await herd.get(young.id)).status is Status.DELETED
    assert len(await members(herd, old)) == 2, "and nobody takes over later"


@pytest.mark.proves("S3")
async def test_deleting_the_heir_of_what_was_lost_leaves_nothing(herd: Herd, world: World) -> None:
    old = await usable(herd)
    world.reclaim(old.cloud_id or "", 1)
    await coming(herd, old)
    accepted = await herd.delete(old.name)
    assert accepted.instance.id != old.id, "a name means the newest, where none can be used"
    await herd.run_for(20 * MINUTE)
    assert [it.status for it in await members(herd, old)] == [Status.DELETED, Status.DELETED]
    assert running(world) == 0


async def test_deleting_an_heir_that_is_being_removed_because_it_failed_leaves_nothing(
    herd: Herd, world: World
) -> None:
    old = await usable(herd)
    world.faults.add(Fault(FaultKind.PULL_FAILURE, count=1))
    world.reclaim(old.cloud_id or "", 1)
    young = await coming(herd, old)
    while young.goal is not Goal.DELETED:
        await herd.run_for(timedelta(seconds=1))
        young = await herd.get(young.id)
    accepted = await herd.delete(young.id)
    assert accepted.instance.id == young.id
    await herd.run_for(20 * MINUTE)
    assert [it.status for it in await members(herd, old)] == [Status.DELETED, Status.DELETED]
    assert running(world) == 0


async def test_an_heir_that_is_declined_leaves_the_old_one_to_its_loss(herd: Herd, world: World) -> None:
    old = await usable(herd)
    announce(world, old)
    await herd.delete((await coming(herd, old)).id)
    await herd.run_for(2 * MINUTE)
    assert (await herd.get(old.id)).usable
    await herd.run_for(20 * MINUTE)
    assert len(await members(herd, old)) == 2
    assert running(world) == 0


@pytest.mark.proves("S3")
async def test_the_end_of_the_lease_is_the_same_for_the_heir(herd: Herd, world: World) -> None:
    old = await usable(herd, terms=Terms(Lease(seconds=1800)))
    announce(world, old)
    await herd.run_for(5 * MINUTE)
    young = await heir_of(herd, old)
    assert young.usable
    assert young.lease_term is not None and old.lease_term is not None
    assert young.lease_term.ends_at == old.lease_term.ends_at
    await herd.run_for(30 * MINUTE)
    assert running(world) == 0
    assert (await herd.get(young.id)).goal is Goal.STOPPED


async def test_a_lease_that_is_set_anew_during_the_handover_holds_for_the_heir(
    herd: Herd, world: World
) -> None:
    old = await usable(herd, terms=Terms(Lease(seconds=1800)))
    announce(world, old)
    young = await coming(herd, old)
    changed = await herd.extend(old.id, LeaseOrder(seconds=7200))
    assert changed.lease_term is not None
    assert (await herd.get(young.id)).lease_term == changed.lease_term


@pytest.mark.proves("S3")
async def test_an_end_during_the_handover_ends_both(herd: Herd, world: World) -> None:
    old = await usable(herd, terms=Terms(Lease(seconds=120, then=EndAction.DELETE)))
    world.faults.add(Fault(FaultKind.SLOW_PULL, factor=100))
    announce(world, old)
    await herd.run_for(10 * MINUTE)
    assert [it.status for it in await members(herd, old)] == [Status.DELETED, Status.DELETED]
    assert running(world) == 0


@pytest.mark.proves("S5")
async def test_heirs_that_fail_are_removed_and_followed_by_others_until_there_were_too_many(
    herd: Herd, world: World
) -> None:
    old = await usable(herd, max_replacements=3, webhook_url=HOOK)
    world.faults.add(Fault(FaultKind.PULL_FAILURE))
    announce(world, old)
    await herd.run_for(20 * MINUTE)
    lineage = await members(herd, old)
    assert [it.status for it in lineage] == [Status.EXITED, *[Status.DELETED] * 3]
    made = [it.created_at for it in lineage]
    assert made[2] - made[1] >= timedelta(seconds=30)
    assert made[3] - made[2] >= timedelta(seconds=60)
    assert herd.webhooks().count("instance.replacement_gave_up") == 1
    assert (await herd.get(old.id)).settled


async def test_an_heir_is_made_early_enough_for_the_usual_boot_of_the_product_that_was_rented(
    herd: Herd, world: World
) -> None:
    for n in range(11, 14):
        slow = a_running_instance(n, ready_at=herd.clock.now() + 20 * MINUTE, cloud_id=None)
        await herd.instances.add(Change(slow))
    old = await usable(herd, product_name="4090")
    announce(world, old, seconds=2 * 3600)
    await herd.run_for(55 * MINUTE)
    chain = (await herd.get(old.id)).chain
    assert chain is None or chain.heir is None
    await herd.run_for(10 * MINUTE)
    assert await heir_of(herd, old)


@pytest.mark.proves("S5")
async def test_an_heir_that_hangs_in_its_boot_is_given_up_in_time_for_another(
    herd: Herd, world: World
) -> None:
    old = await usable(herd)
    world.faults.add(Fault(FaultKind.SLOW_PULL, factor=10_000, count=1))
    announce(world, old)
    await herd.run_for(30 * MINUTE)
    lineage = await members(herd, old)
    assert [it.status for it in lineage] == [Status.DELETED, Status.DELETED, Status.RUNNING]
    assert running(world) == 1


@pytest.mark.proves("S7")
async def test_in_the_limits_of_a_key_the_heir_takes_the_place_of_the_old_one(
    herd: Herd, world: World
) -> None:
    limits = Limits(max_gpus=1, max_hourly_usd=None)
    ada = replace(ADMIN, limits=limits)
    herd.limit_heirs(limits)
    old = await usable(herd, caller=ada)
    announce(world, old)
    assert (await coming(herd, old)).goal is Goal.RUNNING
    with pytest.raises(QuotaExceeded):
        await herd.launch("another", caller=ada)
    await herd.run_for(5 * MINUTE)
    assert (await heir_of(herd, old)).usable


async def test_a_limit_that_has_become_smaller_refuses_the_heir_and_that_is_told_once(
    herd: Herd, world: World
) -> None:
    old = await usable(herd, webhook_url=HOOK, gpu_num=2)
    herd.limit_heirs(Limits(max_gpus=1))
    announce(world, old)
    await herd.run_for(5 * MINUTE)
    assert herd.webhooks().count("instance.replacement_refused") == 1
    assert len(await members(herd, old)) == 1
    assert (await herd.get(old.id)).usable, "it runs on, as long as the cloud lets it"
    herd.limit_heirs(Limits(max_gpus=2))
    await herd.run_for(3 * MINUTE)
    assert (await heir_of(herd, old)).usable


@pytest.mark.proves("S7")
async def test_a_budget_holds_for_an_heir_as_for_any_create(herd: Herd, world: World) -> None:
    old = await usable(herd)
    little = BudgetRequest(
        name="little",
        scope=BudgetScope(),
        amount=int(0.001 * USD),
        period=BudgetPeriod.TOTAL,
        at_limit=AtLimit.BLOCK,
    )
    await herd.add_budget(little, ADMIN)
    announce(world, old)
    await herd.run_for(2 * MINUTE)
    assert [it.chain and it.chain.refused for it in await members(herd, old)] == [True]


@pytest.mark.proves("S7")
async def test_an_heir_that_would_be_too_dear_waits_in_line(herd: Herd, world: World) -> None:
    old = await usable(herd)
    price = old.hourly_usd
    assert price is not None
    dearer = replace(old, wish=replace(old.wish, hourly_usd_max=price / 2))
    await herd.instances.update(replace(herd.change(dearer)))
    announce(world, old)
    await herd.run_for(20 * MINUTE)
    young = await heir_of(herd, old)
    assert young.status is Status.CREATING
    assert young.waiting_for is not None and young.waiting_for.what == "capacity"
    assert (await herd.get(old.id)).status is Status.EXITED, "it was lost meanwhile"


async def test_both_stay_for_the_handover_that_was_agreed(herd: Herd, world: World) -> None:
    old = await usable(herd, handover_s=120)
    announce(world, old)
    await herd.run_for(timedelta(seconds=100))
    assert (await heir_of(herd, old)).usable
    assert (await herd.get(old.id)).usable
    assert running(world) == 2
    assert (await herd.find(old.name)).id == (await heir_of(herd, old)).id
    await herd.run_for(3 * MINUTE)
    assert running(world) == 1


@pytest.mark.proves("S6")
async def test_an_heir_that_is_taken_back_in_turn_is_replaced(herd: Herd, world: World) -> None:
    old = newest = await usable(herd)
    for link in (2, 3):
        announce(world, newest)
        await herd.run_for(5 * MINUTE)
        newest = (await members(herd, old))[-1]
        assert newest.usable
        assert newest.chain is not None and newest.chain.link == link
        assert running(world) == 1
    assert [it.status for it in await members(herd, old)][:2] == [Status.DELETED, Status.DELETED]


@pytest.mark.proves("S6")
async def test_what_is_taken_back_before_anybody_could_use_it_is_replaced_by_its_predecessor(
    herd: Herd, world: World
) -> None:
    old = await usable(herd, health_check=HealthCheck())
    herd.prober.is_up = lambda _: False
    announce(world, old)
    young = await coming(herd, old)
    await herd.run_for(MINUTE)
    young = await herd.get(young.id)
    assert young.status is Status.HEALTH_CHECKING
    world.reclaim(young.cloud_id or "", 1)
    await herd.run_for(2 * MINUTE)
    herd.prober.is_up = lambda _: True
    await herd.run_for(5 * MINUTE)
    lineage = await members(herd, old)
    assert [it.chain and it.chain.replaces for it in lineage] == [None, old.id, old.id]
    assert [it.status for it in lineage] == [Status.DELETED, Status.DELETED, Status.READY]
    assert running(world) == 1


async def test_why_tells_the_whole_lineage(herd: Herd, world: World) -> None:
    old = await usable(herd)
    assert (await herd.why(old)).lineage == (), "one that is alone has none"
    announce(world, old)
    await herd.run_for(5 * MINUTE)
    young = await heir_of(herd, old)
    told = (await herd.why(young)).lineage
    assert [(it.instance_id, it.link, it.status, it.made_for) for it in told] == [
        (old.id, 1, "deleted", None),
        (young.id, 2, "running", "notice"),
    ]


@pytest.mark.proves("S10")
async def test_the_place_that_was_taken_back_is_tried_last_for_an_hour(herd: Herd, world: World) -> None:
    old = await usable(herd)
    announce(world, old)
    await herd.run_for(5 * MINUTE)
    young = await heir_of(herd, old)
    assert old.rental is not None and young.rental is not None
    place = (old.rental.product_id, old.rental.region)
    assert (young.rental.product_id, young.rental.region) != place
    only = await herd.settle(await herd.launch("there", regions=(old.rental.region,)))
    assert only.rental is not None and only.rental.region == old.rental.region, "it may be the only one"
    await herd.run_for(HOUR)
    later = await herd.settle(await herd.launch("later"))
    assert later.rental is not None and (later.rental.product_id, later.rental.region) == place


@pytest.mark.proves("S8")
async def test_names_of_a_lineage_are_never_ambiguous(herd: Herd, world: World) -> None:
    old = await usable(herd)
    announce(world, old)
    await coming(herd, old)
    assert (await herd.find(old.name)).id == old.id, "the newest that can be used"
    await herd.run_for(5 * MINUTE)
    assert (await herd.find(old.name)).id == (await heir_of(herd, old)).id
