"""The simulated cloud's own face: that it shows what the HTTP face shows, and what only it can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from gpuherd.adapters.novita.novita_cloud import NovitaCloud
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.template import CreateCall
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.secret import Secret
from gpuherd.ports.cloud_port import Cloud
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.cloud import SimulatedCloud
from gpuherd.simulator.create_request import CreateRequest, ExposedPort, Tool
from gpuherd.simulator.faults.fault import FAULT_KIND_SPECS, Fault, FaultKind
from gpuherd.simulator.server import start_simulator
from gpuherd.simulator.world.world import World
from tests.support.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto=True)


@pytest.fixture
async def over_http(world: World, clock: FakeClock) -> AsyncIterator[Cloud]:
    server = await start_simulator(world)
    transport = NovitaTransport(
        server.base_url,
        Secret("sk_simulator"),
        clock=clock,
        rng=Random(1),
        limiter=RateLimiter(clock, per_minute=0),
        breaker=CircuitBreaker(clock, threshold=10**6),
    )
    cloud = NovitaCloud(transport, clock=clock)
    yield cloud
    await cloud.close()
    await server.close()


async def an_order(cloud: Cloud) -> CreateCall:
    offer = (await cloud.list_offers(BillingMode.SPOT))[0]
    return CreateCall("job", "gh1-x", offer, await cloud.get_template("101"), 1, 60, BillingMode.SPOT)


async def test_both_faces_show_the_same_catalogue(world: World, over_http: Cloud):
    face = SimulatedCloud(world)
    assert await face.list_regions() == await over_http.list_regions()
    for mode in BillingMode:
        assert set(await face.list_offers(mode)) == set(await over_http.list_offers(mode))
    assert set(await face.list_templates()) == set(await over_http.list_templates())


async def test_both_faces_show_the_same_machines_at_every_moment(world: World, clock, over_http: Cloud):
    face = SimulatedCloud(world)
    modes = ["spot", "onDemand", "monthly"]
    ids = [
        world.create(
            CreateRequest(
                "4090.16c62g",
                name=f"m{n}",
                gpu_num=1 + n % 3,
                billing_mode=modes[n % 3],
                months=n % 3 // 2,
                ports=(ExposedPort(80, "http"), ExposedPort(9000, "tcp")),
                tools=(Tool("Jupyter", 8888, "http"),) if n % 2 else (),
            )
        )
        for n in range(12)
    ]
    rng = Random(3)
    for step in range(60):
        with_luck = rng.choice([face.start_machine, face.stop_machine, face.restart_machine])
        if step % 5 == 4:
            with_luck = face.delete_machine
        try:
            await with_luck(rng.choice(ids))
        except GpuherdError as error:
            assert error.code in ("INVALID_STATE_CHANGE", "MACHINE_NOT_FOUND", "CLOUD_REFUSED")
        running = [m.id for m in world.alive() if m.status(world.now()) == "running"]
        spot = [each for each in running if world.machines[each].request.billing_mode == "spot"]
        if step % 7 == 0 and spot:
            world.reclaim(rng.choice(spot), notice_s=30)
        await clock.advance(rng.uniform(0.5, 9))
        listing = await face.list_machines()
        assert listing.machines == (await over_http.list_machines()).machines
        for machine in listing.machines:
            assert machine == await face.get_machine(machine.cloud_id)


# What only changes what a machine does, or hangs (which is real time over HTTP), is left to the contract.
ON_CALLS = [
    *(FaultKind.REFUSE, FaultKind.SOLD_OUT, FaultKind.RATE_LIMIT, FaultKind.OUTAGE),
    *(FaultKind.LOST_REPLY_BEFORE_COMMIT, FaultKind.LOST_REPLY_AFTER_COMMIT, FaultKind.ERROR_AFTER_COMMIT),
    *(FaultKind.LATE_COMMIT, FaultKind.GARBAGE, FaultKind.START_WENT_THROUGH, FaultKind.GET_404_GLITCH),
]
STATUSES = {
    FaultKind.REFUSE: [400, 401, 402, 403, 404, 405, 408, 409, 422, 429, 500, 502, 503, 504],
    FaultKind.OUTAGE: [400, 401, 403, 404, 500, 504],
    FaultKind.ERROR_AFTER_COMMIT: [500, 502, 408],
}
FAULTS = [
    Fault(kind, style=style, status=status, endpoints=(*ApiEndpoint,))
    for kind in ON_CALLS
    for style in FAULT_KIND_SPECS[kind].styles or ("",)
    for status in STATUSES.get(kind, [None])
]


@pytest.mark.parametrize(
    "fault", FAULTS, ids=lambda fault: f"{fault.kind} {fault.style} {fault.status or ''}"
)
async def test_both_faces_tell_every_fault_in_the_same_words(world: World, clock, over_http: Cloud, fault):
    face = SimulatedCloud(world)
    order = await an_order(face)
    machine_id = await face.create_machine(order)
    await clock.advance(60)
    await over_http.list_regions()  # remembered, so that offers are asked for at once
    calls = {
        "create": lambda cloud: cloud.create_machine(order),
        "list": lambda cloud: cloud.list_machines(),
        "get": lambda cloud: cloud.get_machine(machine_id),
        "offers": lambda cloud: cloud.list_offers(BillingMode.SPOT),
        "templates": lambda cloud: cloud.list_templates(),
        "template": lambda cloud: cloud.get_template("101"),
        "registry": lambda cloud: cloud.check_registry_auth("r3g1stry0auth0of0the0demo0team00"),
        "gone": lambda cloud: cloud.get_machine("0000000000000000"),
        "start": lambda cloud: cloud.start_machine(machine_id),
        "stop": lambda cloud: cloud.stop_machine("0000000000000000"),
        "delete": lambda cloud: cloud.delete_machine("0000000000000000"),
    }
    for name, call in calls.items():
        said: list[tuple[type[GpuherdError], str] | None] = []
        for cloud in (face, over_http):
            world.faults.replace([fault])
            try:
                await call(cloud)
            except GpuherdError as error:
                said.append((type(error), error.code))
            else:
                said.append(None)
            await clock.advance(600)
        assert said[0] == said[1], name


async def test_without_latency_a_call_does_not_even_yield(world: World):
    face = SimulatedCloud(world)
    order = await an_order(face)
    call = face.create_machine(order)
    with pytest.raises(StopIteration) as done:
        call.send(None)
    assert done.value.value in world.machines


async def test_with_latency_a_call_can_be_cancelled_before_and_after_its_effect(world: World):
    by_hand = FakeClock()
    world.clock = by_hand
    order = await an_order(SimulatedCloud(world))
    face = SimulatedCloud(world, latency_s=2)
    for seconds, rented in ((0.9, 0), (1.1, 1)):
        call = asyncio.create_task(face.create_machine(order))
        await by_hand.advance(seconds)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(world.machines) == rented


async def test_what_hangs_goes_on_without_the_one_who_waited(world: World):
    by_hand = FakeClock()
    world.clock = by_hand
    face = SimulatedCloud(world, timeout_s=30)
    order = await an_order(face)
    world.faults.add(
        Fault(FaultKind.HANG, style="before_commit", seconds=100, endpoints=(ApiEndpoint.CREATE,))
    )
    given_up = asyncio.create_task(face.create_machine(order))
    cancelled = asyncio.create_task(face.create_machine(order))
    await by_hand.advance(10)
    cancelled.cancel()
    await by_hand.advance(21)
    assert isinstance(given_up.exception(), GpuherdError)
    assert cancelled.cancelled()
    assert world.machines == {}
    await by_hand.advance(100)
    assert len(world.machines) == 2
    assert face._hanging == set()
