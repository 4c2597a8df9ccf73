"""The hub: nobody is forgotten, nothing is missed, nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest

from gpuherd.usecases.events.change_hub import ChangeHub
from tests.support.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def hub(clock: FakeClock) -> ChangeHub:
    return ChangeHub(clock)


async def test_a_change_wakes_all_who_wait_for_it_and_nobody_else(hub: ChangeHub, clock: FakeClock) -> None:
    woken: list[str] = []

    async def wait(name: str, instance_id: str) -> None:
        async with hub.subscribe(instance_id) as changes:
            if await changes.wait(60):
                woken.append(name)

    tasks = [asyncio.create_task(wait(*it)) for it in [("a", "one"), ("b", "one"), ("c", "two")]]
    await clock.settle()
    hub.changed(["one"])
    await clock.settle()
    assert sorted(woken) == ["a", "b"]
    assert hub.watched == 1
    await clock.advance(60)
    await asyncio.gather(*tasks)
    assert sorted(woken) == ["a", "b"]


async def test_a_change_between_the_read_and_the_wait_is_not_missed(hub: ChangeHub, clock: FakeClock) -> None:
    async with hub.subscribe("one") as changes:
        hub.changed(["one"])
        # No time passes, so this would hang if the change were lost.
        assert await changes.wait(60) is True


async def test_changes_before_one_wait_are_one_wake_up(hub: ChangeHub, clock: FakeClock) -> None:
    async with hub.subscribe("one") as changes:
        hub.changed(["one"])
        hub.changed(["one", "two"])
        assert await changes.wait(1) is True
        again = asyncio.create_task(changes.wait(1))
        await clock.advance(1)
        assert await again is False


async def test_a_wait_ends_after_its_time_and_not_before(hub: ChangeHub, clock: FakeClock) -> None:
    async with hub.subscribe("one") as changes:
        waiting = asyncio.create_task(changes.wait(5))
        await clock.advance(4.9)
        assert not waiting.done()
        await clock.advance(0.1)
        assert await waiting is False


async def test_nothing_is_left_of_those_who_stopped_waiting(hub: ChangeHub, clock: FakeClock) -> None:
    async def wait(instance_id: str) -> None:
        async with hub.subscribe(instance_id) as changes:
            await changes.wait(300)

    tasks = [asyncio.create_task(wait(f"inst-{n % 10}")) for n in range(50)]
    await clock.settle()
    assert (hub.watched, clock.sleepers) == (10, 50)
    for task in tasks[:25]:
        task.cancel()
    await asyncio.gather(*tasks[:25], return_exceptions=True)
    hub.changed([f"inst-{n}" for n in range(10)])
    await asyncio.gather(*tasks[25:])
    await clock.settle()
    assert (hub.watched, clock.sleepers) == (0, 0)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_listeners_hear_of_a_change_before_anybody_wakes(hub: ChangeHub, clock: FakeClock) -> None:
    heard: list[object] = []
    hub.add_listener(heard.append)

    async def wait() -> None:
        async with hub.subscribe("one") as changes:
            await changes.wait(60)
            heard.append("woken")

    task = asyncio.create_task(wait())
    await clock.settle()
    hub.changed(["one", "two"])
    await task
    assert heard == [["one", "two"], "woken"]


async def test_when_nobody_knows_what_changed_everybody_looks(hub: ChangeHub, clock: FakeClock) -> None:
    heard: list[object] = []
    hub.add_listener(heard.append, lambda: heard.append("everything"))
    async with hub.subscribe("one") as one, hub.subscribe("two") as two:
        hub.everything_changed()
        assert await one.wait(60) is True
        assert await two.wait(60) is True
    assert heard == ["everything"]
