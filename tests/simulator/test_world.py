"""What happens to machines, by command and by themselves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.simulator.market import PROXY_PORTS, proxy_ports
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.simulated_request import ExposedPort, SimulatedError, Tool
from gpuherd.simulator.world import World
from tests.simulator.builders import BOOT_S, a_request, a_running_machine, status_of
from tests.support.fake_clock import FakeClock


async def statuses_during(
    world: World, clock: FakeClock, machine: SimulatedMachine, seconds: float
) -> list[str]:
    seen = [status_of(world, machine)]
    for _ in range(int(seconds * 10)):
        await clock.advance(0.1)
        if seen[-1] != (status := status_of(world, machine)):
            seen.append(status)
    return seen


async def test_a_new_machine_boots_through_novitas_statuses_in_order(world: World, clock: FakeClock) -> None:
    machine = world.machines[world.create(a_request())]
    seen = await statuses_during(world, clock, machine, BOOT_S)
    assert seen == ["pending", "toCreate", "creating", "pulling", "running"]


async def test_stop_and_start_go_through_their_statuses(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    world.stop(machine.id)
    assert await statuses_during(world, clock, machine, 10) == ["toStop", "stopping", "exited"]
    world.start(machine.id)
    assert await statuses_during(world, clock, machine, 30) == ["toStart", "starting", "running"]
    world.restart(machine.id)
    assert await statuses_during(world, clock, machine, 30) == ["toRestart", "restarting", "running"]


async def test_tcp_ports_change_on_every_start_and_restart(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    seen = [machine.proxy_ports[22]]
    world.restart(machine.id)
    seen.append(machine.proxy_ports[22])
    await clock.advance(BOOT_S)
    world.stop(machine.id)
    await clock.advance(10)
    world.start(machine.id)
    seen.append(machine.proxy_ports[22])
    assert seen[0] != seen[1] != seen[2]


def test_a_proxy_port_is_never_drawn_twice_in_a_row() -> None:
    before = {port: port for port in PROXY_PORTS[:-3]}
    drawn = proxy_ports(a_request(), before, Random(1))
    assert drawn[22] in PROXY_PORTS[-3:]


async def test_a_deleted_machine_is_shown_a_little_longer_and_then_denied(
    world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock)
    world.delete(machine.id)
    assert world.alive() == []
    assert await statuses_during(world, clock, machine, 4) == ["toRemove", "removing", "removed"]
    assert world.find(machine.id) is machine
    await clock.advance(1)
    with pytest.raises(SimulatedError) as gone:
        world.find(machine.id)
    assert (gone.value.status, gone.value.reason) == (404, "RESOURCE_NOT_FOUND")
    assert list(world.machines) == [machine.id]


@pytest.mark.parametrize("age_s", [0, 1.5, 4, 8, 60])
async def test_a_machine_can_be_deleted_at_any_age(world: World, clock: FakeClock, age_s: float) -> None:
    machine_id = world.create(a_request())
    await clock.advance(age_s)
    world.delete(machine_id)
    await clock.advance(10)
    assert list(world.newest_first()) == []


async def test_a_second_delete_is_quiet_until_the_machine_is_gone(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    world.delete(machine.id)
    gone_at = machine.gone_at
    await clock.advance(2)
    world.delete(machine.id)
    assert machine.gone_at == gone_at
    await clock.advance(3)
    with pytest.raises(SimulatedError, match="not found"):
        world.delete(machine.id)


@pytest.mark.parametrize("command", ["start", "stop", "restart", "reclaim", "migrate"])
async def test_a_command_in_the_wrong_state_is_an_invalid_state_change(world: World, command: str) -> None:
    machine_id = world.create(a_request(billing_mode="spot"))
    with pytest.raises(SimulatedError, match="invalid state change") as refusal:
        getattr(world, command)(machine_id)
    assert refusal.value.status == 400


async def test_a_subscription_cannot_be_deleted(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, billing_mode="monthly", months=1)
    with pytest.raises(SimulatedError) as refusal:
        world.delete(machine.id)
    assert refusal.value.reason == "PREPAID_INSTANCE_NOT_SUPPORT_RELEASE"


async def test_speed_divides_every_duration(clock: FakeClock) -> None:
    world = World(clock, Random(7), speed=10)
    machine = world.machines[world.create(a_request())]
    await clock.advance(BOOT_S / 10)
    assert status_of(world, machine) == "running"
    assert machine.app_is_up(world.now())


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_refused(clock: FakeClock, speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        World(clock, Random(7), speed=speed)


async def test_somebody_setting_our_wall_clock_does_not_move_the_cloud(
    world: World, clock: FakeClock
) -> None:
    machine = world.machines[world.create(a_request())]
    clock.jump_wall(3600)
    assert status_of(world, machine) == "pending"
    clock.jump_wall(-7200)
    await clock.advance(BOOT_S)
    assert status_of(world, machine) == "running"


async def test_the_same_seed_lives_the_same_life() -> None:
    def life(seed: int) -> list[object]:
        world = World(FakeClock(), Random(seed))
        for _ in range(5):
            world.create(a_request(cluster_id=""))
        return [
            (machine.id, machine.cluster_id, machine.turns, machine.proxy_ports)
            for machine in world.machines.values()
        ]

    assert life(1) == life(1)
    assert life(1) != life(2)


async def test_an_edit_adds_ports_and_disk_and_keeps_the_ports_that_were_there(
    world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock)
    ssh = machine.proxy_ports[22]
    world.edit(machine.id, [ExposedPort(22, "tcp"), ExposedPort(9000, "tcp")], 40)
    assert machine.request.disk_gb == 100
    assert machine.proxy_ports[22] == ssh
    assert machine.proxy_ports[9000] != ssh
    with pytest.raises(SimulatedError, match="larger"):
        world.edit(machine.id, None, 6100)


async def test_a_migrated_machine_runs_again_elsewhere(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    ssh = machine.proxy_ports[22]
    job_id = world.migrate(machine.id)
    assert await statuses_during(world, clock, machine, 30) == ["migrating", "running"]
    assert machine.proxy_ports[22] != ssh
    assert [(job.id, job.state(world.now())) for job in world.account.jobs] == [(job_id, "success")]


async def test_a_private_image_is_pulled_only_with_the_right_login(world: World, clock: FakeClock) -> None:
    image = {"image_url": "registry.example.com/team/trainer:1.4"}
    auth = next(iter(world.account.registry_auths.values()))
    by_id = world.create(a_request(**image, image_auth_id=auth.id))
    by_login = world.create(a_request(**image, image_auth=f"{auth.username}:{auth.password}"))
    without = world.create(a_request(**image))
    wrong = world.create(a_request(**image, image_auth="demo-robot:guess"))
    await clock.advance(BOOT_S)
    shown = {machine_id: status_of(world, world.machines[machine_id]) for machine_id in world.machines}
    assert shown == {by_id: "running", by_login: "running", without: "exited", wrong: "exited"}
    assert "pull" in world.machines[wrong].error(world.now())[1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"product_id": "nothing"}, "RESOURCE_NOT_FOUND"),
        ({"cluster_id": "nowhere"}, "RESOURCE_NOT_FOUND"),
        ({"cluster_id": "us-ca-3"}, "INSUFFICIENT_RESOURCE"),
        ({"product_id": "26", "cluster_id": ""}, "INSUFFICIENT_RESOURCE"),
        (
            {"product_id": "B200-180GB.28c240g", "cluster_id": "", "billing_mode": "spot"},
            "UNSUPPORTED_BILLING_MODE",
        ),
        ({"image_auth_id": "nobody"}, "RESOURCE_NOT_FOUND"),
        ({"network_id": "n"}, "NETWORK_NOT_FOUND"),
        ({"product_id": "nothing", "kind": "cpu"}, "RESOURCE_NOT_FOUND"),
        ({"product_id": "cpu.4c8g", "kind": "cpu", "billing_mode": "spot"}, "UNSUPPORTED_BILLING_MODE"),
    ],
)
def test_what_is_not_for_sale_is_refused_with_a_reason(
    world: World, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(SimulatedError) as refusal:
        world.create(a_request(**changes))
    assert (refusal.value.status, refusal.value.reason) == (400, reason)
    assert world.machines == {}


async def test_a_machine_without_a_gpu_takes_no_stock(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, product_id="cpu.4c8g", kind="cpu", gpu_num=0)
    world.stop(machine.id)
    await clock.advance(10)
    world.start(machine.id)
    assert (machine.cpu_num, machine.memory_gb, machine.gpu_ids) == (4, 8, [])


async def test_a_tool_may_have_a_tcp_port(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, tools=(Tool("Debugger", 5678, "tcp"),))
    assert set(machine.proxy_ports) == {22, 5678}


COMMANDS = st.lists(
    st.tuples(
        st.sampled_from(["create", "start", "stop", "restart", "delete", "migrate", "reclaim", "wait"]),
        st.integers(0, 3),
        st.floats(0, 20),
    ),
    max_size=40,
)


@given(commands=COMMANDS, seed=st.integers(0, 1000))
async def test_whatever_is_commanded_no_gpu_is_lost_and_no_history_rewritten(
    commands: list[tuple[str, int, float]], seed: int
) -> None:
    clock = FakeClock()
    world = World(clock, Random(seed), units=3)
    billed = 0.0
    for command, which, seconds in commands:
        try:
            if command == "create":
                world.create(a_request(billing_mode="spot"))
            elif command != "wait" and world.machines:
                ids = list(world.machines)
                getattr(world, command)(ids[which % len(ids)])
        except SimulatedError:
            pass
        await clock.advance(seconds)
        world.tick()
        held = sum(machine.holds_units for machine in world.machines.values())
        assert held + world.stock_levels.free("4090.16c62g", "us-ca-6") == 3
        for machine in world.machines.values():
            assert [turn.at for turn in machine.turns] == sorted(turn.at for turn in machine.turns)
            if machine.status(world.now()) in ("pulling", "running", "starting"):
                assert machine.holds_units
            if machine.status(world.now()) in ("exited", "removed"):
                assert not machine.holds_units
        assert world.billed_gpu_s() >= billed
        billed = world.billed_gpu_s()
