"""Where Novita is: remembered, and served from memory while it cannot be looked up."""

from __future__ import annotations

import asyncio

import pytest

from gpuherd.adapters.novita.novita_call import Exchange, NotSent
from gpuherd.domain.secret import Secret
from gpuherd.resilience.dns import FRESH_S, HUNG_S, LOOKUPS_PER_ZONE, RETRY_S, Dns, Lookup
from tests.adapters.novita.raw_server import raw_server, saying
from tests.support.fake_clock import FakeClock

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
HOST = "api.novita.test"


class NameServer:
    """Gives the next answer at each lookup, the last one for ever; an error is raised, None never answers."""

    def __init__(self, *answers: list[str] | OSError | None) -> None:
        self._answers = list(answers)
        self.lookups = 0

    async def __call__(self, host: str) -> list[str]:
        self.lookups += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, OSError):
            raise answer
        assert isinstance(answer, list)
        return answer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def ask(resolver: Dns) -> list[str]:
    return await resolver.resolve(HOST)


def keeping(clock: FakeClock, lookup: Lookup, **options: float) -> Dns:
    return Dns(clock, lookup, keeps_answers=True, **options)


async def test_an_answer_is_good_for_a_minute(clock: FakeClock) -> None:
    dns = NameServer(["192.0.2.1"], ["192.0.2.2", "2001:db8::2"])
    resolver = keeping(clock, dns)
    await ask(resolver)
    await clock.advance(FRESH_S - 1)
    assert await ask(resolver) == ["192.0.2.1"]
    await clock.advance(1)
    assert await ask(resolver) == ["192.0.2.2", "2001:db8::2"]
    assert dns.lookups == 2


async def test_an_answer_from_before_the_host_slept_is_looked_up_anew(clock: FakeClock) -> None:
    dns = NameServer(["192.0.2.1"], ["192.0.2.2"])
    resolver = keeping(clock, dns)
    await ask(resolver)
    clock.suspend(FRESH_S)
    assert await ask(resolver) == ["192.0.2.2"]


async def test_a_lookup_that_fails_leaves_the_last_good_addresses_and_is_repeated_soon(
    clock: FakeClock,
) -> None:
    dns = NameServer(["192.0.2.1"], OSError(), ["192.0.2.2"])
    resolver = keeping(clock, dns)
    await ask(resolver)
    await clock.advance(FRESH_S)
    assert await ask(resolver) == ["192.0.2.1"]
    assert await ask(resolver) == ["192.0.2.1"]
    assert dns.lookups == 2
    await clock.advance(RETRY_S)
    assert await ask(resolver) == ["192.0.2.2"]


async def test_they_are_served_for_days_if_need_be(clock: FakeClock) -> None:
    resolver = keeping(clock, NameServer(["192.0.2.1"], OSError()))
    await ask(resolver)
    await clock.advance(7 * 86_400)
    assert await ask(resolver) == ["192.0.2.1"]


@pytest.mark.proves("F59")
async def test_a_lookup_that_is_late_is_not_waited_for(clock: FakeClock) -> None:
    dns = NameServer(["192.0.2.1"], None)
    resolver = keeping(clock, dns, patience_s=0.01)
    await ask(resolver)
    await clock.advance(FRESH_S)
    assert await ask(resolver) == ["192.0.2.1"]
    # Nor is another one begun beside it.
    assert await ask(resolver) == ["192.0.2.1"]
    assert dns.lookups == 2
    await resolver.close()


async def test_one_that_hangs_for_ever_is_left_behind_but_only_a_few(clock: FakeClock) -> None:
    dns = NameServer(["192.0.2.1"], None)
    resolver = keeping(clock, dns, patience_s=0.01)
    await ask(resolver)
    await clock.advance(FRESH_S)
    for _ in range(3 * LOOKUPS_PER_ZONE):
        assert await ask(resolver) == ["192.0.2.1"]
        await clock.advance(HUNG_S)
    assert dns.lookups == 1 + LOOKUPS_PER_ZONE


async def test_without_any_answer_yet_the_error_is_told(clock: FakeClock) -> None:
    with pytest.raises(OSError, match="no such name"):
        await ask(keeping(clock, NameServer(OSError("no such name"))))


async def test_many_connections_at_once_look_up_once(clock: FakeClock) -> None:
    dns = NameServer(["192.0.2.1"])
    resolver = keeping(clock, dns)
    await asyncio.gather(*(ask(resolver) for _ in range(10)))
    assert dns.lookups == 1


async def test_an_address_at_which_nobody_answers_is_looked_up_again_before_its_minute_is_over(
    clock: FakeClock,
) -> None:
    async with raw_server(saying(OK)) as server:
        port = server.base_url.rpartition(":")[2]
        # Nobody listens at the first one.
        dns = NameServer(["127.0.0.2"], ["127.0.0.1"])
        resolver = keeping(clock, dns)
        novita = Exchange(
            f"http://{HOST}:{port}", Secret("sk_test"), clock=clock, max_bytes=100, dns=resolver
        )
        with pytest.raises(NotSent, match="no connection"):
            await novita.post("/x", {}, 10)
        await clock.advance(RETRY_S)
        assert (await novita.post("/x", {}, 10)).status == 200
        await novita.close()


async def test_a_dead_address_before_a_living_one_does_not_stop_a_call(clock: FakeClock) -> None:
    async with raw_server(saying(OK)) as server:
        port = server.base_url.rpartition(":")[2]
        resolver = keeping(clock, NameServer(["127.0.0.2", "127.0.0.1"]))
        root = f"http://{HOST}:{port}"
        novita = Exchange(root, Secret("sk_test"), clock=clock, max_bytes=100, dns=resolver)
        assert (await novita.post("/x", {}, 10)).status == 200
        await novita.close()
