"""A herd on a calm simulated cloud."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto=True)


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock, random.Random(7))


@pytest.fixture
def look_every() -> timedelta:
    """Less often than the service does, because each look of these tests takes real time."""
    return timedelta(seconds=5)


@pytest.fixture
def herd(tmp_path: Path, world: World, clock: FakeClock, look_every: timedelta) -> Iterator[Herd]:
    herd = Herd(tmp_path / "herd.db", world, clock, look_every=look_every)
    yield herd
    herd.close()
