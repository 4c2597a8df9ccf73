"""Something blocks the event loop: it is told where, once, and work goes on after it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gpuherd.bootstrap.stall_watchdog import StallWatchdog
from gpuherd.clock import SystemClock
from tests.support.fake_clock import FakeClock

PATIENCE_S = 20.0


@pytest.mark.proves("F56")
async def test_f56_a_stall_is_told_once_and_the_next_one_again(lines: list[Any]) -> None:
    clock = FakeClock()
    # So long that the real heartbeat does not come in between.
    watch = StallWatchdog(clock, 1000.0)
    for _ in range(2):
        watch.heartbeat()
        await clock.advance(900)
        watch.check()
        await clock.advance(4100)
        watch.check()
        await clock.advance(1000)
        watch.check()
        watch.heartbeat()
        watch.check()
    assert [(it["event"], it["seconds"]) for it in lines] == [("loop.stalled", 5000.0)] * 2


@pytest.mark.proves("F56")
async def test_f56_the_line_says_what_blocks_the_loop(lines: list[Any]) -> None:
    seen = threading.Event()

    class Told(StallWatchdog):
        def check(self) -> None:
            super().check()
            if self._reported:
                seen.set()

    def a_call_that_blocks() -> bool:
        return seen.wait(PATIENCE_S)

    with Told(SystemClock(), 0.05):
        assert a_call_that_blocks()
    assert lines[0]["event"] == "loop.stalled"
    assert any("a_call_that_blocks" in place for place in lines[0]["stack"])
