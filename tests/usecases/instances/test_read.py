"""Reading one instance: cheap when nothing changed, never out of date, and patient when asked to be."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import Instance, Status, Waiting, WaitingFor
from gpuherd.domain.instance.instance_state import WaitFor
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.instances.read_instance import (
    DETAILS_TTL_S,
    RECHECK_S,
    WAITING_TTL_S,
    InstanceCache,
    read_instance,
    wait_for_instance,
)
from gpuherd.usecases.services import Services
from tests.support.builders import a_running_instance, an_instance
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import Herd


async def no_place(_: Instance) -> None:
    """Nobody waits here."""


class Memory:
    """A store with one instance; a read takes as long as a test wants, and may be overtaken by a change."""

    def __init__(self, clock: FakeClock, instance: Instance):
        self.clock, self.instance = clock, instance
        self.hub = ChangeHub(clock)
        self.reads: Counter[str] = Counter()
        self.before_s = self.after_s = 0.0
        self.is_stale = False
        needed = SimpleNamespace(
            stores=SimpleNamespace(instances=self, hub=self.hub),
            clock=clock,
            observer=SimpleNamespace(is_stale=lambda: self.is_stale),
            capacity_line=SimpleNamespace(place_of=no_place),
            instance_cache=InstanceCache(clock, self.hub),
        )
        self.services = cast(Services, needed)

    async def get(self, instance_id: str) -> Instance:
        self.reads["get"] += 1
        await self.clock.sleep(self.before_s)
        found = self.instance
        await self.clock.sleep(self.after_s)
        if instance_id != found.id:
            raise NotFound("there is no such instance", code="INSTANCE_NOT_FOUND")
        return found

    async def find_named(self, name: str, owner: str | None = None) -> tuple[Instance, ...]:
        self.reads["named"] += 1
        return (self.instance,) if name == self.instance.name else ()

    def commit(self, **changes: Any) -> None:
        """Change the instance as another part of this process does."""
        self.commit_elsewhere(**changes)
        self.hub.changed([self.instance.id])

    def commit_elsewhere(self, **changes: Any) -> None:
        """Change the instance as another process does: nobody here is told."""
        self.instance = replace(self.instance, version=self.instance.version + 1, **changes)

    async def read(self) -> bytes:
        return await read_instance(self.services, self.instance.id)

    async def wait_for(self, word: str, what: WaitFor, timeout_s: float) -> tuple[bytes, bool]:
        return await wait_for_instance(self.services, word, what, timeout_s)

    async def details(self, word: str | None = None) -> dict[str, Any]:
        details = await read_instance(self.services, word or self.instance.id)
        return cast(dict[str, Any], json.loads(details))


@pytest.fixture
def memory(clock: FakeClock) -> Memory:
    return Memory(clock, an_instance())


async def test_by_id_the_same_bytes_are_served_without_the_store(memory: Memory, clock: FakeClock) -> None:
    first = await memory.read()
    again = [await memory.read() for _ in range(100)]
    assert all(it is first for it in again)
    assert memory.reads == {"get": 1}
    details = json.loads(first)
    assert (details["id"], details["stale"], details["source"]) == (memory.instance.id, False, "local")


async def test_details_are_encoded_anew_after_30_s_and_states_read_anew_after_60_s(
    memory: Memory, clock: FakeClock
) -> None:
    first = await memory.read()
    await clock.sleep(WAITING_TTL_S)
    assert await memory.read() is first
    await clock.sleep(DETAILS_TTL_S - WAITING_TTL_S)
    await memory.details()
    assert memory.reads == {"get": 1}
    await clock.sleep(DETAILS_TTL_S)
    await memory.details()
    assert memory.reads == {"get": 2}


async def test_what_is_said_of_a_place_in_line_is_no_older_than_20_s(
    memory: Memory, clock: FakeClock
) -> None:
    memory.commit(waiting_for=Waiting(WaitingFor.CAPACITY, "sold out", START))
    first = await memory.read()
    await clock.sleep(WAITING_TTL_S - 1)
    assert await memory.read() is first
    await clock.sleep(1)
    assert await memory.read() is not first


async def test_by_name_the_store_is_always_asked(memory: Memory) -> None:
    assert (await memory.details("job-1"))["status"] == "creating"
    memory.commit_elsewhere(status=Status.STARTING)
    assert (await memory.details("job-1"))["status"] == "starting"
    assert memory.reads == {"named": 2}
    with pytest.raises(NotFound):
        await memory.details("nobody")


async def test_a_change_is_seen_at_once(memory: Memory) -> None:
    await memory.details()
    memory.commit(status=Status.STARTING)
    assert (await memory.details())["status"] == "starting"


async def test_what_was_read_before_a_change_is_not_remembered(memory: Memory, clock: FakeClock) -> None:
    memory.after_s = 1.0
    overtaken = asyncio.create_task(memory.details())
    await clock.sleep(0.5)
    memory.commit(status=Status.STARTING)
    # Who asked before the change may hear the old answer, who asks after it may not.
    asked_after = asyncio.create_task(memory.details())
    assert (await overtaken)["status"] == "creating"
    assert (await asked_after)["status"] == "starting"
    assert (await memory.details())["status"] == "starting"


@pytest.mark.parametrize("seed", range(30))
async def test_nobody_ever_gets_less_than_was_committed_when_he_asked(seed: int) -> None:
    rng = random.Random(seed)
    clock = FakeClock(auto=True)
    memory = Memory(clock, an_instance(name="v0"))
    commits = 0

    async def write() -> None:
        nonlocal commits
        for _ in range(20):
            await clock.sleep(rng.uniform(0, 3))
            memory.before_s, memory.after_s = rng.uniform(0, 2), rng.uniform(0, 2)
            commits += 1
            memory.commit(labels={"commit": str(commits)})

    async def read() -> None:
        for _ in range(40):
            await clock.sleep(rng.uniform(0, 1.5))
            known = commits
            details = await memory.details()
            assert int(details["labels"].get("commit", 0)) >= known, f"seed {seed}"

    await asyncio.gather(write(), *(read() for _ in range(5)))


async def test_unknown_ids_are_not_found_and_not_remembered(memory: Memory) -> None:
    for _ in range(2):
        with pytest.raises(NotFound):
            await memory.details(an_instance(2).id)
    assert memory.reads == {"get": 2}


async def test_stale_is_said_while_it_is_true_and_never_remembered(memory: Memory) -> None:
    assert (await memory.details())["stale"] is False
    memory.is_stale = True
    assert (await memory.details())["stale"] is True
    assert (await memory.details("job-1"))["stale"] is True
    memory.commit(status=Status.STARTING)
    shown = await memory.details()
    assert (shown["stale"], shown["status"]) == (True, "starting")
    memory.is_stale = False
    assert (await memory.details())["stale"] is False


async def test_details_that_were_read_while_the_cloud_fell_silent_are_not_stale_for_ever(
    memory: Memory, clock: FakeClock
) -> None:
    memory.after_s = 1.0
    reading = asyncio.create_task(memory.details())
    await clock.sleep(0.5)
    memory.is_stale = True
    await reading
    memory.is_stale = False
    assert (await memory.details())["stale"] is False


async def test_during_an_outage_the_last_known_state_is_served_and_marked(herd: Herd, world: World) -> None:
    async def stale() -> bool:
        return bool(json.loads(await herd.details(instance.id))["stale"])

    instance = await herd.settle(await herd.launch())
    assert not await stale()
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=600, endpoints=(ApiEndpoint.LIST,)))
    await herd.run_for(timedelta(seconds=20))
    assert not await stale()
    # Two lists in a row that failed are enough.
    await herd.run_for(timedelta(seconds=60))
    assert await stale()
    shown = json.loads(await herd.details(instance.id))
    assert (shown["status"], shown["usable"]) == ("running", True)
    await herd.run_for(timedelta(seconds=600))
    assert not await stale()


async def test_a_wait_for_what_is_there_already_returns_at_once(memory: Memory, clock: FakeClock) -> None:
    memory.instance = a_running_instance()
    details, timed_out = await memory.wait_for(memory.instance.id, WaitFor.READY, 300)
    assert json.loads(details)["usable"] is True
    assert (timed_out, clock.now()) == (False, START)


async def test_a_wait_for_what_cannot_come_returns_at_once(memory: Memory, clock: FakeClock) -> None:
    memory.instance = an_instance(status=Status.FAILED)
    details, timed_out = await memory.wait_for("job-1", WaitFor.READY, 300)
    assert json.loads(details)["status"] == "failed"
    assert (timed_out, clock.now()) == (False, START)


@pytest.mark.parametrize(("timeout_s", "waited_s"), [(0, 0), (7.5, 7.5), (1000, 300)])
async def test_a_wait_times_out_with_the_state_as_it_is(
    memory: Memory, clock: FakeClock, timeout_s: float, waited_s: float
) -> None:
    details, timed_out = await wait_for_instance(
        memory.services, memory.instance.id, WaitFor.READY, timeout_s
    )
    assert json.loads(details)["status"] == "creating"
    assert timed_out
    assert clock.now() == START + timedelta(seconds=waited_s)
    assert memory.hub.watched == 0


async def test_a_change_during_the_first_read_of_a_wait_is_not_missed(
    memory: Memory, clock: FakeClock
) -> None:
    memory.after_s = 1.0
    waiting = asyncio.create_task(memory.wait_for(memory.instance.id, WaitFor.READY, 60))
    await clock.sleep(0.5)
    memory.commit(status=Status.RUNNING, ready_at=START)
    _, timed_out = await waiting
    assert not timed_out
    # The read that was overtaken, and the one that saw the change; no pause in between.
    assert clock.now() == START + timedelta(seconds=2)


async def test_a_change_that_another_process_made_is_found_within_5_s(
    memory: Memory, clock: FakeClock
) -> None:
    waits = [asyncio.create_task(memory.wait_for(memory.instance.id, WaitFor.READY, 300)) for _ in range(50)]
    await clock.sleep(21)
    memory.commit_elsewhere(status=Status.RUNNING, ready_at=START)
    replies = await asyncio.gather(*waits)
    assert {timed_out for _, timed_out in replies} == {False}
    assert clock.now() <= START + timedelta(seconds=21 + RECHECK_S)
    # However many wait, one of them looks; and now the plain details know it too.
    assert memory.reads["get"] == 6
    assert (await memory.details())["usable"] is True


async def test_a_wait_that_is_cancelled_leaves_nothing_behind(memory: Memory, clock: FakeClock) -> None:
    waiting = asyncio.create_task(memory.wait_for(memory.instance.id, WaitFor.READY, 300))
    await clock.sleep(1)
    assert memory.hub.watched == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await clock.settle()
    assert (memory.hub.watched, clock.sleepers) == (0, 0)


async def test_a_hundred_who_wait_for_one_instance_wake_at_the_moment_it_is_ready(
    herd: Herd, clock: FakeClock
) -> None:
    instance = await herd.launch()
    woken_at: list[datetime] = []

    async def wait() -> bytes:
        details, timed_out = await herd.wait_for(instance.id, WaitFor.READY, 300)
        assert not timed_out
        woken_at.append(clock.now())
        return details

    waits = [asyncio.create_task(wait()) for _ in range(100)]
    ready = await herd.settle(instance)
    replies = await asyncio.gather(*waits)
    assert set(woken_at) == {ready.ready_at}
    assert {json.loads(it)["usable"] for it in replies} == {True}
    assert herd.hub.watched == 0


async def test_a_name_that_several_share_is_not_waited_for(herd: Herd) -> None:
    await herd.launch("twin")
    await herd.launch("twin")
    with pytest.raises(Conflict):
        await herd.wait_for("twin", WaitFor.READY, 30)
