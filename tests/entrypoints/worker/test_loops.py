"""Loops do their work again and again, whatever it raises; some begin later."""

from __future__ import annotations

from gpuherd.bootstrap.background_loops import Loop
from tests.support.fake_clock import FakeClock


async def times_of(clock: FakeClock, seconds: float, first_after_s: float = 0.0) -> list[float]:
    """Return when the work of a loop of 10 s was begun, counted from its start; each one fails."""
    begun: list[float] = []
    start = clock.monotonic()

    async def work() -> None:
        begun.append(clock.monotonic() - start)
        raise RuntimeError("no luck")

    loop = Loop("test", 10.0, work, clock, first_after_s)
    loop.start()
    await clock.advance(seconds)
    await loop.stop()
    return begun


async def test_work_is_done_at_once_and_then_again_whatever_went_wrong():
    assert await times_of(FakeClock(), 25.0) == [0.0, 10.0, 20.0]


async def test_what_nobody_waits_for_begins_later():
    assert await times_of(FakeClock(), 25.0, first_after_s=7.0) == [7.0, 17.0]
