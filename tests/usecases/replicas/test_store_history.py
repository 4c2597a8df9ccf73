"""The history of the store: a loss is told to everybody, and written down for those who start later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.usecases.service.leader_election import HISTORY_FLAG, StoreHistory
from tests.support.fake_clock import START, FakeClock
from tests.support.memory.outbox import MemoryFlags
from tests.support.memory.tables import Tables


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def flags() -> MemoryFlags:
    return MemoryFlags(Tables())


async def test_a_loss_is_told_at_once_and_read_anew_until_that_works(clock: FakeClock) -> None:
    history, told, failures = StoreHistory(clock), [], [StoreUnavailable("away")]

    async def reload() -> None:
        if failures:
            raise failures.pop()
        told.append("read")

    history.subscribe(lambda: told.append("forgotten"))
    history.subscribe_reload(reload)
    await history.reload()
    assert told == []
    history.declare_lost("of a test")
    assert told == ["forgotten"]
    with pytest.raises(StoreUnavailable):
        await history.reload()
    await history.reload()
    await history.reload()
    assert told == ["forgotten", "read"]


async def test_the_first_start_takes_note_of_the_history(clock: FakeClock, flags: MemoryFlags) -> None:
    history = StoreHistory(clock)
    await history.compare(flags, "7/1")
    assert (history.lost_at, await flags.get(HISTORY_FLAG)) == (None, "7/1")


async def test_a_start_on_another_history_is_a_loss_and_later_starts_know_when_it_was(
    clock: FakeClock, flags: MemoryFlags
) -> None:
    await StoreHistory(clock).compare(flags, "7/1")
    first, second = StoreHistory(clock), StoreHistory(clock)
    await first.compare(flags, "7/2")
    assert first.lost_at == START
    await clock.advance(60)
    await second.compare(flags, "7/2")
    assert second.lost_at == START
    assert second.is_recent(timedelta(seconds=60))
    assert not second.is_recent(timedelta(seconds=59))


async def test_a_loss_under_a_running_process_is_written_down_for_the_next(
    clock: FakeClock, flags: MemoryFlags
) -> None:
    history = StoreHistory(clock)
    await history.compare(flags, "7/1")
    history.declare_lost("of a test")
    await history.compare(flags, "7/2")
    later = StoreHistory(clock)
    await later.compare(flags, "7/2")
    assert later.lost_at == START


async def test_a_history_without_a_name_is_not_compared(clock: FakeClock, flags: MemoryFlags) -> None:
    await StoreHistory(clock).compare(flags, "7/1")
    history = StoreHistory(clock)
    await history.compare(flags, None)
    assert (history.lost_at, await flags.get(HISTORY_FLAG)) == (None, "7/1")
