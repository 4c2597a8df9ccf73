"""A herd on a calm simulated cloud."""

from __future__ import annotations

import random
from collections.abc import Iterator
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
def herd(tmp_path: Path, world: World, clock: FakeClock) -> Iterator[Herd]:
    herd = Herd(tmp_path / "herd.db", world, clock)
    yield herd
    herd.close()
