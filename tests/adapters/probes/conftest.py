"""A prober that may reach loopback, and doors that are closed again after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from gpuherd.adapters.outbound.guarded_door import GuardedDoor
from gpuherd.adapters.probes.prober import GuardedProber
from gpuherd.domain.targets import TargetPolicy
from gpuherd.ports.outbound import Resolver
from tests.adapters.outbound.doubles import LOOPBACK_OPEN, TLS, StubResolver
from tests.support.fake_clock import FakeClock

ProberMaker = Callable[..., GuardedProber]


@pytest.fixture
async def make_prober() -> AsyncIterator[ProberMaker]:
    doors: list[GuardedDoor] = []

    def make(policy: TargetPolicy = LOOPBACK_OPEN, resolver: Resolver | None = None) -> GuardedProber:
        clock = FakeClock()
        door = GuardedDoor(policy, resolver or StubResolver(), clock, tls=TLS)
        doors.append(door)
        return GuardedProber(door, door, clock)

    yield make
    for door in doors:
        await door.close()


@pytest.fixture
def prober(make_prober: ProberMaker) -> GuardedProber:
    return make_prober()
