"""The bell: heard from any thread, once for everything that happened since somebody last looked."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from gpuherd.adapters.queue.pgqueuer_names import CHANNEL
from gpuherd.adapters.queue.sqlite_driver import SqliteDriver
from tests.support.fake_clock import FakeClock


@pytest.fixture
def heard() -> list[dict[str, object]]:
    return []


@pytest.fixture
async def driver(heard: list[dict[str, object]]) -> SqliteDriver:
    driver = SqliteDriver(FakeClock())
    await driver.add_listener(CHANNEL, lambda note: heard.append(json.loads(note)))
    return driver


async def test_a_ring_is_heard_at_once(driver: SqliteDriver, heard: list[dict[str, object]]) -> None:
    driver.wake_listeners()
    assert [note["type"] for note in heard] == ["table_changed_event"]


async def test_rings_are_one_until_somebody_looks(
    driver: SqliteDriver, heard: list[dict[str, object]]
) -> None:
    driver.wake_listeners()
    driver.wake_listeners()
    assert len(heard) == 1
    driver.acknowledge()
    driver.wake_listeners()
    assert len(heard) == 2


async def test_a_ring_from_another_thread_is_heard(
    driver: SqliteDriver, heard: list[dict[str, object]]
) -> None:
    thread = threading.Thread(target=driver.wake_listeners)
    thread.start()
    await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)
    assert len(heard) == 1


async def test_the_callback_runs_in_the_loop_that_listens() -> None:
    driver = SqliteDriver(FakeClock())
    where: asyncio.Queue[threading.Thread] = asyncio.Queue()
    await driver.add_listener(CHANNEL, lambda note: where.put_nowait(threading.current_thread()))
    await asyncio.to_thread(driver.wake_listeners)
    async with asyncio.timeout(10):
        assert await where.get() is threading.current_thread()


def test_a_ring_that_nobody_hears_is_harmless() -> None:
    driver = SqliteDriver(FakeClock())
    driver.wake_listeners()

    async def listen_for_a_while() -> None:
        await driver.add_listener(CHANNEL, lambda note: None)

    asyncio.run(listen_for_a_while())
    driver.wake_listeners()


async def test_who_left_hears_nothing_and_the_next_one_does(heard: list[dict[str, object]]) -> None:
    driver = SqliteDriver(FakeClock())
    gone: list[object] = []
    async with driver:
        await driver.add_listener(CHANNEL, gone.append)
    async with driver:
        await driver.add_listener(CHANNEL, lambda note: heard.append(json.loads(note)))
        driver.wake_listeners()
    assert (len(gone), len(heard)) == (0, 1)


async def test_listeners_stay_until_the_last_user_leaves(
    driver: SqliteDriver, heard: list[dict[str, object]]
) -> None:
    async with driver:
        async with driver:
            pass
        driver.wake_listeners()
    assert len(heard) == 1


async def test_a_removed_listener_hears_nothing() -> None:
    driver = SqliteDriver(FakeClock())
    heard: list[object] = []
    await driver.add_listener(CHANNEL, heard.append)
    await driver.remove_listener(CHANNEL, heard.append)
    await driver.remove_listener(CHANNEL, heard.append)
    driver.wake_listeners()
    await driver.notify(CHANNEL, "{}")
    assert heard == []


async def test_it_sends_no_sql(driver: SqliteDriver) -> None:
    with pytest.raises(NotImplementedError):
        await driver.fetch("SELECT 1")
    with pytest.raises(NotImplementedError):
        await driver.execute("SELECT 1")
