"""Faults strike the calls they are meant for, as often as they are meant to, with the truth kept apart."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from gpuherd.simulator.account_api import ProductQuery
from gpuherd.simulator.faults import FAULT_KIND_SPECS, ApiEndpoint, Call, Fault, FaultKind
from gpuherd.simulator.instance_api import ListQuery, Paging
from gpuherd.simulator.simulated_request import ConnectionCut, GarbageReply, SimulatedError
from gpuherd.simulator.world import World
from tests.simulator.builders import BOOT_S, Calls, a_request, a_running_machine, status_of
from tests.support.fake_clock import FakeClock


@pytest.fixture
def desk(world: World) -> Calls:
    return Calls(world)


def strike(world: World, kind: FaultKind, **details: Any) -> None:
    world.faults.add(Fault(kind, **details))


def test_every_kind_of_fault_is_explained() -> None:
    assert set(FAULT_KIND_SPECS) == set(FaultKind)
    assert all(rules.meaning for rules in FAULT_KIND_SPECS.values())


@pytest.mark.parametrize(
    ("details", "complaint"),
    [
        ({"style": "odd"}, "no style"),
        ({"probability": 1.5}, "probability"),
        ({"count": 0}, "count"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(details: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Fault(FaultKind.OUTAGE, **details)


async def test_a_fault_strikes_as_often_as_it_was_told(world: World, desk: Calls) -> None:
    strike(world, FaultKind.REFUSE, count=2, status=500)
    for _ in range(2):
        with pytest.raises(SimulatedError):
            await desk.clusters()
    await desk.clusters()
    assert world.faults.strikes == {"refuse": 2}


async def test_a_fault_has_a_window(world: World, desk: Calls, clock: FakeClock) -> None:
    strike(world, FaultKind.OUTAGE, after_s=10, for_s=20)
    await desk.clusters()
    await clock.advance(10)
    with pytest.raises(SimulatedError) as refusal:
        await desk.clusters()
    assert refusal.value.status == 503
    await clock.advance(20)
    await desk.clusters()


async def test_a_fault_picks_its_victims(world: World, desk: Calls) -> None:
    strike(world, FaultKind.REFUSE, endpoints=(ApiEndpoint.CREATE,), cluster="as-sgp-2", name_contains="-a")
    await desk.clusters()
    await desk.create(a_request(name="job-a"))
    await desk.create(a_request(name="job-b", cluster_id="as-sgp-2"))
    with pytest.raises(SimulatedError):
        await desk.create(a_request(name="job-a", cluster_id="as-sgp-2"))
    strike(world, FaultKind.REFUSE, product="H100-80GB.16c128g")
    with pytest.raises(SimulatedError):
        await desk.create(a_request(product_id="H100-80GB.16c128g"))


def test_odds_come_from_the_seed() -> None:
    def strikes(seed: int) -> list[bool]:
        world = World(FakeClock(), Random(seed))
        strike(world, FaultKind.REFUSE, probability=0.5)
        return [world.faults.draw(FaultKind.REFUSE, Call(ApiEndpoint.LIST)) is not None for _ in range(100)]

    assert strikes(1) == strikes(1) != strikes(2)
    assert 30 < sum(strikes(1)) < 70


async def test_a_refusal_says_what_it_was_told_to_say(world: World, desk: Calls) -> None:
    strike(world, FaultKind.REFUSE, status=400, reason="BALANCE_NOT_ENOUGH", message="no money")
    with pytest.raises(SimulatedError) as refusal:
        await desk.create(a_request())
    assert (refusal.value.reason, refusal.value.message) == ("BALANCE_NOT_ENOUGH", "no money")
    assert world.machines == {}


async def test_a_sold_out_region_refuses_creates_and_starts(
    world: World, desk: Calls, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock)
    await desk.stop(machine.id)
    await clock.advance(5)
    strike(world, FaultKind.SOLD_OUT, cluster="us-ca-6")
    for call, reason in (
        (desk.create(a_request()), "INSUFFICIENT_RESOURCE"),
        (desk.start(machine.id), "INSUFFICIENT_RESOURCE"),
        (desk.migrate(machine.id), "MIGRATE_INSUFFICIENT_RESOURCE"),
    ):
        with pytest.raises(SimulatedError) as refusal:
            await call
        assert refusal.value.reason == reason
    elsewhere = await desk.create(a_request(cluster_id=""))
    assert world.machines[elsewhere].cluster_id != "us-ca-6"


@pytest.mark.parametrize("retry_after", ["", "2", "Thu, 01 Jan 2026 00:01:00 GMT", "soon"])
async def test_a_rate_limit_comes_with_or_without_advice(world: World, desk: Calls, retry_after: str) -> None:
    strike(world, FaultKind.RATE_LIMIT, retry_after=retry_after)
    with pytest.raises(SimulatedError) as refusal:
        await desk.list_machines(ListQuery())
    assert (refusal.value.status, refusal.value.reason) == (429, "RATE_LIMIT_EXCEEDED")
    assert refusal.value.headers == ({"Retry-After": retry_after} if retry_after else {})


@pytest.mark.parametrize(("style", "made_while_hanging"), [("after_commit", 1), ("before_commit", 0)])
async def test_a_hanging_call_answers_late(
    world: World, desk: Calls, clock: FakeClock, style: str, made_while_hanging: int
) -> None:
    strike(world, FaultKind.HANG, seconds=30, style=style)
    call = asyncio.create_task(desk.create(a_request()))
    await clock.advance(29)
    assert (call.done(), len(world.machines)) == (False, made_while_hanging)
    await clock.advance(1)
    assert [call.result()] == list(world.machines)


async def test_a_reply_lost_before_the_commit_leaves_nothing(world: World, desk: Calls) -> None:
    strike(world, FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1)
    with pytest.raises(ConnectionCut) as cut:
        await desk.create(a_request())
    assert not cut.value.committed
    assert world.machines == {}


async def test_a_reply_lost_after_the_commit_leaves_a_machine(world: World, desk: Calls) -> None:
    strike(world, FaultKind.LOST_REPLY_AFTER_COMMIT, count=1)
    await desk.list_machines(ListQuery())
    with pytest.raises(ConnectionCut) as cut:
        await desk.create(a_request())
    assert cut.value.committed
    assert len(world.alive()) == 1


async def test_an_error_after_the_commit_leaves_a_machine(world: World, desk: Calls) -> None:
    strike(world, FaultKind.ERROR_AFTER_COMMIT, status=502)
    with pytest.raises(SimulatedError) as error:
        await desk.create(a_request())
    assert error.value.status == 502
    assert len(world.alive()) == 1


async def test_a_late_commit_makes_the_machine_when_nobody_waits_any_more(
    world: World, desk: Calls, clock: FakeClock
) -> None:
    strike(world, FaultKind.LATE_COMMIT, seconds=30)
    begin = world.now()
    with pytest.raises(ConnectionCut):
        await desk.create(a_request(name="late-one"))
    await clock.advance(29)
    assert world.alive() == []
    # Nobody looks at the moment itself; it still counts as the moment.
    await clock.advance(31)
    (machine,) = world.alive()
    assert (machine.name, machine.created_at) == ("late-one", begin + 30)
    assert machine.status(world.now()) != "pending"
    assert world.log[-1].outcome == "committed late"


async def test_a_late_commit_may_come_to_nothing(world: World, desk: Calls, clock: FakeClock) -> None:
    strike(world, FaultKind.LATE_COMMIT, seconds=30)
    with pytest.raises(ConnectionCut):
        await desk.create(a_request())
    world.stock("4090.16c62g", "us-ca-6", 0)
    await clock.advance(30)
    assert world.alive() == []
    assert world.log[-1].outcome == "late 400 INSUFFICIENT_RESOURCE"


async def test_other_commands_can_commit_late_too(world: World, desk: Calls, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    strike(world, FaultKind.LATE_COMMIT, seconds=5, endpoints=(ApiEndpoint.STOP,))
    with pytest.raises(ConnectionCut):
        await desk.stop(machine.id)
    assert status_of(world, machine) == "running"
    await clock.advance(6)
    assert status_of(world, machine) in ("toStop", "stopping")


async def test_garbage_hides_a_commit(world: World, desk: Calls) -> None:
    strike(world, FaultKind.GARBAGE, style="number_id")
    with pytest.raises(GarbageReply) as garbage:
        await desk.create(a_request())
    assert garbage.value.style == "number_id"
    assert [garbage.value.result] == list(world.machines)


async def test_a_start_may_go_through_and_deny_it(world: World, desk: Calls, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    await desk.stop(machine.id)
    await clock.advance(5)
    strike(world, FaultKind.START_WENT_THROUGH)
    with pytest.raises(SimulatedError, match="invalid state change"):
        await desk.start(machine.id)
    assert status_of(world, machine) == "toStart"


async def test_a_glitch_denies_a_machine_that_exists(world: World, desk: Calls) -> None:
    machine_id = await desk.create(a_request())
    strike(world, FaultKind.GET_404_GLITCH, count=1)
    with pytest.raises(SimulatedError) as glitch:
        await desk.get(machine_id)
    assert glitch.value.status == 404
    assert (await desk.get(machine_id)).machine.id == machine_id


async def test_a_lagging_list_shows_new_machines_late(world: World, desk: Calls, clock: FakeClock) -> None:
    strike(world, FaultKind.LIST_LAG, seconds=20)
    machine_id = await desk.create(a_request())
    assert (await desk.list_machines(ListQuery())).total == 0
    assert (await desk.get(machine_id)).machine.id == machine_id
    await clock.advance(20)
    assert [row.machine.id for row in (await desk.list_machines(ListQuery())).rows] == [machine_id]


async def test_an_empty_list_lies_for_its_window(world: World, desk: Calls, clock: FakeClock) -> None:
    await desk.create(a_request())
    strike(world, FaultKind.EMPTY_LIST, for_s=60)
    page = await desk.list_machines(ListQuery())
    assert (page.rows, page.total) == ((), 0)
    await clock.advance(60)
    assert (await desk.list_machines(ListQuery())).total == 1


@pytest.mark.parametrize(
    ("style", "rows", "total"),
    [
        ("missing_page", [], 5),
        ("duplicated_page", ["job-4", "job-3"], 5),
        ("wrong_total", ["job-2", "job-1"], 6),
        ("short_page", ["job-2"], 5),
    ],
)
async def test_a_partial_list_is_wrong_in_its_own_way(
    world: World, desk: Calls, style: str, rows: list[str], total: int
) -> None:
    for number in range(5):
        await desk.create(a_request(name=f"job-{number}"))
    strike(world, FaultKind.PARTIAL_LIST, style=style)
    page = await desk.list_machines(ListQuery(Paging(size=2, number=2)))
    assert [row.machine.name for row in page.rows] == rows
    assert page.total == total


@pytest.mark.parametrize(
    ("kind", "style", "shown"),
    [
        (FaultKind.STATUS_FLAP, "", "starting"),
        (FaultKind.STATUS_FLAP, "creating", "creating"),
        (FaultKind.UNKNOWN_STATUS, "", "hibernating"),
    ],
)
async def test_a_status_can_be_shown_wrongly(
    world: World, desk: Calls, clock: FakeClock, kind: FaultKind, style: str, shown: str
) -> None:
    machine = await a_running_machine(world, clock)
    strike(world, kind, style=style)
    assert (await desk.get(machine.id)).status == shown
    assert (await desk.list_machines(ListQuery())).rows[0].status == shown
    assert status_of(world, machine) == "running"


@pytest.mark.parametrize(("style", "kept"), [("truncate", "x" * 32), ("empty", "")])
async def test_a_name_can_be_forgotten(world: World, desk: Calls, style: str, kept: str) -> None:
    strike(world, FaultKind.DROP_NAME, style=style)
    machine_id = await desk.create(a_request(name="x" * 100))
    assert world.machines[machine_id].name == kept


async def test_a_name_can_be_replaced(world: World, desk: Calls) -> None:
    strike(world, FaultKind.DROP_NAME, style="replace")
    machine_id = await desk.create(a_request(name="mine"))
    assert world.machines[machine_id].name == f"instance-{machine_id[:6]}"


async def test_a_pull_can_be_slow_or_endless(world: World, clock: FakeClock) -> None:
    strike(world, FaultKind.SLOW_PULL, factor=10, name_contains="slow")
    strike(world, FaultKind.SLOW_PULL, name_contains="endless")
    slow, endless = (world.machines[world.create(a_request(name=name))] for name in ("slow", "endless"))
    await clock.advance(BOOT_S)
    assert status_of(world, slow) == status_of(world, endless) == "pulling"
    await clock.advance(300)
    assert status_of(world, slow) == "running"
    await clock.advance(86_400)
    assert status_of(world, endless) == "pulling"
    world.delete(endless.id)
    await clock.advance(10)
    assert world.alive() == [slow]


@pytest.mark.parametrize(
    ("style", "status", "holds"), [("exited", "exited", False), ("stuck", "pulling", True)]
)
async def test_a_pull_can_fail(
    world: World, clock: FakeClock, style: str, status: str, *, holds: bool
) -> None:
    strike(world, FaultKind.PULL_FAILURE, style=style, message="manifest unknown")
    strike(world, FaultKind.SLOW_PULL)
    machine = world.machines[world.create(a_request())]
    assert machine.error(world.now()) == ("", "")
    await clock.advance(BOOT_S)
    assert status_of(world, machine) == status
    assert machine.error(world.now()) == ("pulling", "manifest unknown")
    assert machine.holds_units is holds


async def test_a_reclaim_gives_notice_then_evicts(world: World, clock: FakeClock) -> None:
    strike(world, FaultKind.RECLAIM, seconds=100, notice_s=60)
    machine = world.machines[world.create(a_request(billing_mode="spot"))]
    running_at = machine.turns[-1].at

    async def shown_at(seconds: float) -> tuple[str, str, int]:
        await clock.advance(running_at + seconds - world.now())
        return (
            status_of(world, machine),
            machine.spot_status(world.now()),
            machine.spot_reclaim_time(world.now()),
        )

    assert await shown_at(-1) == ("pulling", "running", 0)
    assert await shown_at(99) == ("running", "running", 0)
    assert await shown_at(101) == ("running", "notified", 0)
    assert await shown_at(161) == ("running", "reclaiming", int(running_at + 160))
    assert await shown_at(191) == ("exited", "terminated", int(running_at + 160))
    assert world.free_units("4090.16c62g", "us-ca-6") == 50
    world.start(machine.id)
    assert (machine.spot_status(world.now()), machine.spot_reclaim_time(world.now())) == ("running", 0)


async def test_the_reclaim_time_may_be_told_with_the_notice(world: World, clock: FakeClock) -> None:
    strike(world, FaultKind.RECLAIM, seconds=0, notice_s=60, style="time_at_notice")
    machine = await a_running_machine(world, clock, billing_mode="spot")
    assert machine.spot_status(world.now()) == "notified"
    assert machine.spot_reclaim_time(world.now()) > world.now()


async def test_the_usual_reclaim_leaves_an_hour_and_tells_an_hour_ahead(
    world: World, clock: FakeClock
) -> None:
    strike(world, FaultKind.RECLAIM)
    machine = await a_running_machine(world, clock, billing_mode="spot")
    assert machine.reclaim is not None
    assert machine.reclaim.notice_at - (machine.last("running", world.now()) or 0) == pytest.approx(3600)
    assert machine.reclaim.begin_at - machine.reclaim.notice_at == pytest.approx(3600)


async def test_reclaim_times_follow_the_speed(clock: FakeClock) -> None:
    world = World(clock, Random(7), speed=10)
    strike(world, FaultKind.RECLAIM, seconds=100, notice_s=60)
    machine = world.machines[world.create(a_request(billing_mode="spot"))]
    await clock.advance(4 + 10 + 6 + 3)
    assert status_of(world, machine) == "exited"


async def test_only_spot_machines_are_reclaimed(world: World, clock: FakeClock) -> None:
    strike(world, FaultKind.RECLAIM, seconds=0, notice_s=0)
    machine = await a_running_machine(world, clock)
    await clock.advance(100)
    assert status_of(world, machine) == "running"
    with pytest.raises(SimulatedError) as refusal:
        world.reclaim(machine.id)
    assert refusal.value.reason == "UNSUPPORTED_BILLING_MODE"


async def test_a_stop_before_the_reclaim_calls_it_off(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    world.reclaim(machine.id, notice_s=20)
    world.stop(machine.id)
    await clock.advance(10)
    assert (machine.spot_status(world.now()), machine.spot_reclaim_time(world.now())) == ("", 0)
    world.start(machine.id)
    await clock.advance(100)
    assert status_of(world, machine) == "running"


async def test_a_reclaim_that_was_called_off_does_not_hasten_the_next_one(
    world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    world.reclaim(machine.id, notice_s=60)
    world.stop(machine.id)
    await clock.advance(10)
    world.start(machine.id)
    await clock.advance(30)
    world.reclaim(machine.id, notice_s=600)
    await clock.advance(100)
    assert (status_of(world, machine), machine.spot_status(world.now())) == ("running", "notified")


async def test_a_deleted_machine_is_not_reclaimed(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    world.reclaim(machine.id, notice_s=0)
    await clock.advance(29)
    world.delete(machine.id)
    await clock.advance(2)
    assert status_of(world, machine) == "removed"


async def test_a_start_forgets_what_went_wrong_before(world: World, clock: FakeClock) -> None:
    strike(world, FaultKind.PULL_FAILURE, count=1)
    failed = world.machines[world.create(a_request())]
    await clock.advance(BOOT_S)
    world.start(failed.id)
    assert failed.error(world.now()) == ("", "")
    evicted = await a_running_machine(world, clock, billing_mode="spot")
    world.reclaim(evicted.id, notice_s=0)
    await clock.advance(30)
    assert evicted.spot_status(world.now()) == "terminated"
    world.start(evicted.id)
    assert (evicted.spot_status(world.now()), evicted.spot_reclaim_time(world.now())) == ("running", 0)


async def test_a_restart_does_not_call_a_reclaim_off(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    world.reclaim(machine.id, notice_s=0)
    world.restart(machine.id)
    await clock.advance(100)
    assert status_of(world, machine) == "exited"


@pytest.mark.parametrize(("room", "then"), [(1, "running"), (0, "exited")])
async def test_a_machine_that_may_move_moves_when_it_is_evicted(
    world: World, clock: FakeClock, room: int, then: str
) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    world.set_auto_migrate(machine.id, is_open=True)
    world.reclaim(machine.id, notice_s=0)
    if not room:
        strike(world, FaultKind.SOLD_OUT)
    await clock.advance(100)
    assert status_of(world, machine) == then


async def test_faults_compose(world: World, desk: Calls, clock: FakeClock) -> None:
    strike(world, FaultKind.LIST_LAG, seconds=20)
    strike(world, FaultKind.DROP_NAME, style="empty")
    strike(world, FaultKind.LOST_REPLY_AFTER_COMMIT, count=1)
    with pytest.raises(ConnectionCut):
        await desk.create(a_request())
    assert (await desk.list_machines(ListQuery())).total == 0
    await clock.advance(20)
    assert (await desk.list_machines(ListQuery())).rows[0].machine.name == ""


async def test_every_call_is_counted_and_logged_with_its_outcome_and_without_its_secrets(
    world: World, desk: Calls
) -> None:
    strike(world, FaultKind.LOST_REPLY_AFTER_COMMIT, count=1)
    with pytest.raises(ConnectionCut):
        await desk.create(a_request(name="one", image_auth="user:hunter2", envs=(("TOKEN", "hunter2"),)))
    machine_id = await desk.create(a_request(name="two"))
    with pytest.raises(SimulatedError):
        await desk.start(machine_id)
    await desk.products(ProductQuery())
    assert world.calls == {"create": 2, "start": 1, "products": 1}
    assert [(line.endpoint, line.name, line.outcome) for line in world.log] == [
        ("create", "one", "cut after commit"),
        ("create", "two", "ok"),
        ("start", "two", "400 REQUEST"),
        ("products", "", "ok"),
    ]
    assert "hunter2" not in repr(world.log) + repr(world.machines)
