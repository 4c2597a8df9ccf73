"""The system's resolver, as far as it can be asked without a network, and what dead names may cost."""

from __future__ import annotations

import asyncio

import pytest

from gpuherd.resilience.dns import LOOKUPS_MAX, LOOKUPS_PER_ZONE, Dns
from tests.support.fake_clock import FakeClock


class NameServer:
    """Answers the names that it has, and leaves every other one waiting until it is told to answer."""

    def __init__(self, **names: list[str]) -> None:
        self._names = {name.replace("_", "."): addresses for name, addresses in names.items()}
        self.asked: list[str] = []
        self.answers = asyncio.Event()

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        if host not in self._names:
            await self.answers.wait()
            raise OSError("no such name")
        return self._names[host]


async def waiting_for(resolver: Dns, *names: str) -> list[asyncio.Task[list[str]]]:
    tasks = [asyncio.create_task(resolver.resolve(name)) for name in names]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def leave(*tasks: asyncio.Task[list[str]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_each_address_comes_once() -> None:
    answers = await Dns(FakeClock()).resolve("localhost")
    assert "127.0.0.1" in answers or "::1" in answers
    assert len(answers) == len(set(answers))


@pytest.mark.parametrize("name", ["a" * 64 + ".example.com", "a..b"])
async def test_a_name_that_cannot_be_looked_up_is_an_os_error(name: str) -> None:
    with pytest.raises(OSError):
        await Dns(FakeClock()).resolve(name)


async def test_a_lookup_that_takes_too_long_is_an_os_error() -> None:
    with pytest.raises(OSError, match="does not answer"):
        await Dns(FakeClock(), NameServer(), timeout_s=0.01).resolve("hook.dead")


async def test_who_asks_for_the_same_name_meanwhile_waits_for_the_same_lookup() -> None:
    dns = NameServer()
    tasks = await waiting_for(Dns(FakeClock(), dns), "hook.dead", "hook.dead")
    assert dns.asked == ["hook.dead"]
    await leave(*tasks)


async def test_each_later_request_looks_up_anew() -> None:
    dns = NameServer(a_test=["192.0.2.1"])
    resolver = Dns(FakeClock(), dns)
    assert [await resolver.resolve("a.test") for _ in range(2)] == [["192.0.2.1"]] * 2
    assert dns.asked == ["a.test"] * 2


async def test_lookups_that_nobody_waits_for_keep_their_threads_and_no_more_are_begun() -> None:
    dns = NameServer()
    resolver = Dns(FakeClock(), dns)
    abandoned = await waiting_for(resolver, *(f"hook.dead{n}" for n in range(LOOKUPS_MAX)))
    await leave(*abandoned)
    late = await waiting_for(resolver, "hook.late")
    assert len(dns.asked) == LOOKUPS_MAX
    dns.answers.set()
    await asyncio.gather(*late, return_exceptions=True)
    assert dns.asked[-1] == "hook.late"


async def test_who_gives_up_in_the_queue_for_a_thread_leaves_it() -> None:
    dns = NameServer()
    resolver = Dns(FakeClock(), dns)
    running = await waiting_for(resolver, *(f"hook.dead{n}" for n in range(LOOKUPS_MAX)))
    await leave(*await waiting_for(resolver, "hook.late"))
    dns.answers.set()
    await asyncio.gather(*running, return_exceptions=True)
    assert "hook.late" not in dns.asked


async def test_nobody_is_cancelled_with_one_who_gave_up_in_the_queue() -> None:
    dns = NameServer()
    resolver = Dns(FakeClock(), dns)
    running = await waiting_for(resolver, *(f"hook.dead{n}" for n in range(LOOKUPS_MAX)))
    first, second = await waiting_for(resolver, "hook.late", "hook.other")
    first.cancel()
    await asyncio.sleep(0)
    third = asyncio.create_task(resolver.resolve("hook.late"))
    dns.answers.set()
    *_, failure = await asyncio.gather(*running, second, third, return_exceptions=True)
    assert isinstance(failure, OSError)


@pytest.mark.proves("F59")
async def test_many_names_of_one_dead_zone_leave_threads_for_others() -> None:
    dns = NameServer(hook_alive=["192.0.2.1"])
    resolver = Dns(FakeClock(), dns)
    dead = await waiting_for(resolver, *(f"hook{n}.example.dead" for n in range(2 * LOOKUPS_MAX)))
    assert len(dns.asked) == LOOKUPS_PER_ZONE
    assert await resolver.resolve("hook.alive") == ["192.0.2.1"]
    await leave(*dead)
