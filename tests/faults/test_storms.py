"""Half an hour of 5xx or of "too many": few calls, nobody fails, everybody catches up."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.adapters.novita.novita_cloud import NovitaCloud
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.secret import Secret
from gpuherd.resilience.circuit_breaker import BreakerState, CircuitBreaker
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

STORM = timedelta(minutes=30)
THRESHOLD = 10
PER_MINUTE = 300


class Door:
    """A herd that reaches the simulated Novita over HTTP, through the real limiter and breaker."""

    def __init__(self, path: Path, world: World, clock: FakeClock, base_url: str):
        self.breaker = CircuitBreaker(clock, threshold=THRESHOLD)
        self.limiter = RateLimiter(clock, PER_MINUTE, burst=60)
        transport = NovitaTransport(
            Exchange(base_url, Secret("sk_storm"), clock=clock),
            clock=clock,
            rng=random.Random(7),
            limiter=self.limiter,
            breaker=self.breaker,
        )
        self.cloud = NovitaCloud(transport, clock=clock)
        self.herd = Herd(path, world, clock, cloud=self.cloud, max_wait=timedelta(hours=2))


@pytest.fixture
async def door(tmp_path: Path, world: World, clock: FakeClock) -> AsyncIterator[Door]:
    server = await start_simulator(world)
    door = Door(tmp_path / "storm.db", world, clock, server.base_url)
    yield door
    door.herd.close()
    await door.cloud.close()
    await server.close()


@pytest.mark.proves("F10")
async def test_f10_a_storm_of_5xx_costs_few_calls_and_fails_nobody(door: Door, world: World) -> None:
    herd = door.herd
    running = await herd.settle(await herd.launch("running"))
    # The breaker looks back for a minute, and what went well in it is forgotten by then.
    await herd.run_for(timedelta(minutes=2))
    before = sum(world.calls.values())
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=STORM.total_seconds(), status=503))
    waiting = [await herd.launch(f"waiting-{n}") for n in range(2)]
    await herd.run_for(STORM - timedelta(seconds=5))
    assert door.breaker.state is not BreakerState.CLOSED
    # Ten failures open it; then two probes at most after each pause of 60, 120, 240, 240, … s.
    assert sum(world.calls.values()) - before <= THRESHOLD + 2 * 9
    for it in (running, *waiting):
        assert (await herd.get(it.id)).status in (Status.RUNNING, Status.CREATING)
    assert all(row.attempts == 0 for row in herd.rows(herd.tables.job))

    ended = [await herd.settle(it) for it in waiting]
    assert {it.status for it in ended} == {Status.RUNNING}
    assert len(world.alive()) == 3
    # One each went into the storm before the breaker opened; its outcome was found out before the second.
    assert world.calls[ApiEndpoint.CREATE.value] <= 1 + 2 * 2


@pytest.mark.proves("F9")
async def test_f9_too_many_without_a_time_halves_the_rate_and_creates_wait_longer_each_time(
    door: Door, world: World
) -> None:
    herd = door.herd
    world.faults.add(Fault(FaultKind.RATE_LIMIT, endpoints=(ApiEndpoint.CREATE,), for_s=600))
    instance = await herd.launch()
    await herd.run_for(timedelta(seconds=595))
    # Waits of 1, 2, 4, 8, 16 and then 30 s.
    assert world.calls[ApiEndpoint.CREATE.value] <= 5 + 600 // 30
    assert door.limiter.rate_per_minute <= PER_MINUTE / 2
    # Nothing is wrong with a cloud that says clearly what it wants.
    assert door.breaker.state is BreakerState.CLOSED
    assert (await herd.settle(instance)).status is Status.RUNNING
    assert len(world.alive()) == 1


@pytest.mark.proves("F8")
@pytest.mark.parametrize(("retry_after", "pause_s"), [("120", 120), ("1000000000", 300)])
async def test_f8_a_time_to_wait_holds_every_call_and_never_for_longer_than_five_minutes(
    door: Door, world: World, retry_after: str, pause_s: int
) -> None:
    herd = door.herd
    await herd.settle(await herd.launch("first"))
    world.faults.add(
        Fault(FaultKind.RATE_LIMIT, endpoints=(ApiEndpoint.CREATE,), count=1, retry_after=retry_after)
    )
    instance = await herd.launch("second")
    await herd.run_for(timedelta(seconds=4))
    before = sum(world.calls.values())
    # A read is ready to wait for its turn for 30 s, so the last half minute does not count.
    await herd.run_for(timedelta(seconds=pause_s - 40))
    # Not even a list: the pause is for everybody who uses the key.
    assert sum(world.calls.values()) == before
    begun_s = herd.clock.monotonic()
    assert (await herd.settle(instance)).status is Status.RUNNING
    assert herd.clock.monotonic() - begun_s < 120
