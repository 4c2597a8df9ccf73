"""Many who wait for the same: one of them asks, the oldest is served first, and everybody sees its place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.domain.cloud.offer import BillingMode, OfferKey
from gpuherd.domain.errors import NoCapacity
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.usecases.reconcile.test_wait_for_capacity import sell_out

WAIT_S = 24 * 3600
MINUTE = timedelta(minutes=1)
HOOK = "http://example.com/hook"
CREATES, PRODUCTS = ApiEndpoint.CREATE.value, ApiEndpoint.PRODUCTS.value
OTHER = "RTX 3090 24GB"


async def wait_in_line(herd: Herd, count: int, **wish: Any) -> list[Instance]:
    """Let so many wait, one after the other."""
    found = []
    for n in range(count):
        found.append(await herd.launch(f"w{n}", capacity_wait_s=WAIT_S, **wish))
        await herd.run_for(timedelta(seconds=1))
    return found


async def statuses(herd: Herd, instances: Sequence[Instance]) -> list[Status]:
    return [(await herd.get(it.id)).status for it in instances]


async def details(herd: Herd, instance: Instance) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await herd.details(instance.id))
    return found


def restock(world: World, units: int) -> None:
    """Let so many be had of the product, in one place."""
    world.stock("4090.16c62g", "as-sgp-2", units)


async def calls_of(herd: Herd, world: World, waiters: int, span: timedelta) -> Counter[str]:
    """Return what the cloud is asked while so many wait and all are refused."""
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1_000_000))
    for n in range(waiters):
        await herd.launch(f"w{n}", capacity_wait_s=WAIT_S)
    before = Counter(world.calls)
    await herd.run_for(span)
    return Counter(world.calls) - before


# A tenth of them in every run: what they cost must not grow with them.
@pytest.mark.proves("C1")
@pytest.mark.parametrize("waiters", [100, pytest.param(1000, marks=pytest.mark.long)])
async def test_a_thousand_waiters_cost_the_calls_of_one(
    herd: Herd, world: World, tmp_path: Any, waiters: int
) -> None:
    hour = timedelta(hours=1)
    alone = await calls_of(herd, world, 1, hour)
    crowd = Herd.__new__(type(herd))
    crowd_world = type(world)(herd.clock, herd.rng)
    crowd.__init__(tmp_path / "crowd.db", crowd_world, herd.clock, look_every=timedelta(seconds=5))  # type: ignore[misc]
    together = await calls_of(crowd, crowd_world, waiters, hour)
    assert together[CREATES] <= alone[CREATES]
    assert together[PRODUCTS] <= hour / timedelta(seconds=30) + 1
    assert len(crowd.rows(crowd.tables.attempt)) <= alone[CREATES]


@pytest.mark.proves("C2")
async def test_the_oldest_gets_the_first_machine_and_the_others_follow_in_their_order(
    herd: Herd, world: World
) -> None:
    sell_out(world)
    line = await wait_in_line(herd, 4)
    for served in range(1, 4):
        restock(world, 1)
        await herd.run_for(2 * MINUTE)
        got = [it is Status.RUNNING for it in await statuses(herd, line)]
        assert got == [True] * served + [False] * (4 - served)


async def test_where_there_is_stock_for_all_nobody_waits_for_the_next_look(herd: Herd, world: World) -> None:
    sell_out(world)
    line = await wait_in_line(herd, 5)
    restock(world, 5)
    await herd.run_for(timedelta(seconds=45))
    assert all(it is not Status.CREATING for it in await statuses(herd, line))


@pytest.mark.proves("C2")
async def test_a_newcomer_does_not_overtake_whether_it_would_wait_or_not(herd: Herd, world: World) -> None:
    sell_out(world)
    (oldest,) = await wait_in_line(herd, 1)
    restock(world, 1)
    # Before anybody was woken.
    herd.forget_offers()
    patient = await herd.launch("late", capacity_wait_s=WAIT_S)
    with pytest.raises(NoCapacity) as refused:
        await herd.launch("hasty")
    reasons = {offer["reason"] for it in refused.value.details["regions"] for offer in it["offers"]}
    assert "1 has waited for it longer" in reasons
    await herd.run_for(MINUTE)
    assert await statuses(herd, [oldest, patient]) == [Status.RUNNING, Status.CREATING]


async def test_who_would_take_something_else_is_not_held_up(herd: Herd, world: World) -> None:
    sell_out(world)
    await wait_in_line(herd, 2)
    world.stock("3090.16c92g", "as-in-1", 2)
    herd.forget_offers()
    instance = await herd.settle(await herd.launch("other", product_name=OTHER))
    assert instance.status is Status.RUNNING


@pytest.mark.proves("C3")
async def test_a_head_that_cannot_pay_does_not_block_the_line(herd: Herd, world: World) -> None:
    sell_out(world)
    poor = await herd.launch("poor", capacity_wait_s=WAIT_S, hourly_usd_max=Decimal("0.01"))
    await herd.run_for(MINUTE)
    (rich,) = await wait_in_line(herd, 1)
    restock(world, 1)
    await herd.run_for(2 * MINUTE)
    assert await statuses(herd, [poor, rich]) == [Status.CREATING, Status.RUNNING]


async def test_who_gives_up_makes_room_for_the_next(herd: Herd, world: World) -> None:
    sell_out(world)
    line = await wait_in_line(herd, 2)
    await herd.delete(line[0].id)
    await herd.run_for(MINUTE)
    restock(world, 1)
    await herd.run_for(2 * MINUTE)
    assert await statuses(herd, line) == [Status.DELETED, Status.RUNNING]


async def test_everybody_sees_its_place_and_what_the_cloud_said_last(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1_000_000))
    line = await wait_in_line(herd, 3)
    await herd.run_for(MINUTE)
    shown = [(await details(herd, it))["waits"] for it in line]
    assert [(it["for"], it["position"], it["ahead"]) for it in shown] == [
        ("capacity", 1, 0),
        ("capacity", 2, 1),
        ("capacity", 3, 2),
    ]
    assert [it["nextTryAt"] is None for it in shown] == [False, True, True]
    for it in shown:
        assert it["lastAnswer"]["message"]
        assert "spot" in it["lastAnswer"]["offer"]
        assert it["since"] < it["lastAnswer"]["at"] or it is shown[0]


async def test_the_end_of_a_wait_is_told(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=WAIT_S, webhook_url=HOOK)
    await herd.run_for(5 * MINUTE)
    restock(world, 1)
    rented = await herd.settle(instance)
    assert herd.webhooks()[:3] == ["instance.created", "instance.waiting", "instance.granted"]
    assert rented.line_since is None
    assert (await details(herd, instance))["waits"] is None


async def test_who_never_waited_is_granted_nothing(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch(capacity_wait_s=WAIT_S, webhook_url=HOOK))
    assert "instance.granted" not in herd.webhooks()


@pytest.mark.proves("C4")
async def test_the_line_outlives_a_crash(herd: Herd, world: World, tmp_path: Any) -> None:
    sell_out(world)
    line = await wait_in_line(herd, 3)
    herd.close()
    after = type(herd)(tmp_path / "herd.db", world, herd.clock, look_every=timedelta(seconds=5))
    await after.run_for(MINUTE)
    restock(world, 1)
    await after.run_for(2 * MINUTE)
    got = [it is Status.RUNNING for it in await statuses(after, line)]
    assert got == [True, False, False]


@pytest.mark.proves("C3")
async def test_one_whose_call_had_no_answer_lets_others_try_and_keeps_its_place(
    herd: Herd, world: World
) -> None:
    sell_out(world)
    line = await wait_in_line(herd, 3)
    world.faults.add(Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, endpoints=(ApiEndpoint.CREATE,)))
    restock(world, 1)
    await herd.run_for(2 * MINUTE)
    first, second, third = await statuses(herd, line)
    assert (first, second, third) == (Status.CREATING, Status.RUNNING, Status.CREATING)
    await herd.run_for(20 * MINUTE)
    restock(world, 1)
    await herd.run_for(5 * MINUTE)
    assert await statuses(herd, line) == [Status.RUNNING, Status.RUNNING, Status.CREATING]


async def test_a_refusal_is_remembered_for_everybody(herd: Herd, world: World) -> None:
    """Who does not wait finds out without a call, and takes what is not resting."""
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1))
    first = await herd.settle(await herd.launch())
    calls = world.calls[CREATES]
    second = await herd.settle(await herd.launch())
    assert world.calls[CREATES] == calls + 1
    assert first.rental is not None and second.rental is not None
    assert second.rental.region == first.rental.region
    await herd.run_for(MINUTE)
    third = await herd.settle(await herd.launch())
    assert third.rental is not None and third.rental.region != first.rental.region


KEY = OfferKey("4090", "CN-HK-01", BillingMode.SPOT)
NOW = timedelta(0)


async def test_those_who_would_wait_call_one_at_a_time_until_there_is_stock(
    herd: Herd, clock: FakeClock
) -> None:
    line = herd.capacity_line
    with line.calling(KEY) as first, line.calling(KEY) as second:
        assert (first, second) == (NOW, timedelta(seconds=1, milliseconds=20))
        await line.note_rental(KEY)
    # One call has brought something, so two may be made, and so on.
    with line.calling(KEY) as first, line.calling(KEY) as second, line.calling(KEY) as third:
        assert (first, second) == (NOW, NOW)
        assert third > NOW
        await line.note_refusal(KEY, "none left")
    with line.calling(KEY) as first, line.calling(KEY) as second:
        assert (first, second > NOW) == (NOW, True)
        await line.note_rental(KEY)
    await clock.sleep(61)
    with line.calling(KEY) as first, line.calling(KEY) as second:
        assert (first, second > NOW) == (NOW, True)


async def test_the_more_are_turned_away_the_later_each_comes_again(herd: Herd) -> None:
    line = herd.capacity_line
    with line.calling(KEY):
        pauses = []
        for _ in range(1000):
            with line.calling(KEY) as pause:
                pauses.append(pause)
    assert pauses == sorted(pauses)
    assert pauses[-1] == timedelta(seconds=10)


async def test_a_burst_that_would_wait_is_served_at_once_where_there_is_stock(
    herd: Herd, world: World
) -> None:
    sell_out(world, units=100)
    burst = [await herd.launch(f"b{n}", capacity_wait_s=WAIT_S) for n in range(60)]
    await herd.run_for(MINUTE)
    assert all([(await herd.get(it.id)).cloud_id for it in burst])
    assert "instance.waiting" not in herd.webhooks()


async def test_nobody_tries_an_offer_while_the_first_in_line_does(herd: Herd, world: World) -> None:
    sell_out(world)
    (first,) = await wait_in_line(herd, 1)
    restock(world, 2)
    seen: list[int] = []
    create = herd.cloud.create_machine

    async def watched(order: Any) -> str:
        seen.append(len((await herd.stores.capacity.load())[0]))
        return await create(order)

    herd.cloud.create_machine = watched  # type: ignore[method-assign]
    assert (await herd.settle(first)).status is Status.RUNNING
    assert seen == [1], "it is in line until the cloud has answered"
