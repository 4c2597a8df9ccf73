"""Doors that are closed again after each test."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable

import pytest

from gpuherd.adapters.outbound.guarded_door import GuardedDoor
from gpuherd.domain.targets import TargetPolicy
from gpuherd.ports.outbound import Resolver
from tests.adapters.outbound.doubles import LOOPBACK_OPEN, StubResolver
from tests.support.fake_clock import FakeClock

DoorMaker = Callable[..., GuardedDoor]


@pytest.fixture
async def make_door() -> AsyncIterator[DoorMaker]:
    made: list[GuardedDoor] = []

    def make(
        policy: TargetPolicy = LOOPBACK_OPEN,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> GuardedDoor:
        made.append(GuardedDoor(policy, resolver or StubResolver(), FakeClock(), tls=tls))
        return made[-1]

    yield make
    for door in made:
        await door.close()
