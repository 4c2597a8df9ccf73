"""Herds that keep traces."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuherd.simulator.world import World
from tests.adapters.tracing.exported import TracingProcess
from tests.support.fake_clock import FakeClock
from tests.support.herd import FileHerd, Herd

# Less often than the service does, because each look of these tests takes real time.
LOOK_EVERY = timedelta(seconds=5)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto=True)


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock, random.Random(7))


@pytest.fixture
def processes(
    tmp_path: Path, world: World, clock: FakeClock
) -> Iterator[Callable[..., tuple[Herd, TracingProcess]]]:
    """Return how to start a process on the one database; a second one takes over from the first."""
    started: list[tuple[Herd, TracingProcess]] = []

    def start(**about: Any) -> tuple[Herd, TracingProcess]:
        if started:
            started[-1][0].close()
        traces = TracingProcess(clock, seed=len(started), **about)
        herd = FileHerd(
            tmp_path / "herd.db",
            world,
            clock,
            seed=len(started) + 1,
            tracer=traces.tracer,
            look_every=LOOK_EVERY,
        )
        started.append((herd, traces))
        return herd, traces

    yield start
    started[-1][0].close()
    for _, traces in started:
        traces.close()
