"""A look at the use of one instance, with the cloud's clock in mind."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.idleness import AppAnswer, Utilization
from gpuherd.domain.instance.lease import Idleness, Terms
from gpuherd.usecases.reconcile.watch_idleness import UseClock, look_at_use
from gpuherd.usecases.services import Services
from tests.support.builders import a_running_instance
from tests.support.fake_clock import START, FakeClock

MINUTE = timedelta(minutes=1)


class SilentApplication:
    async def ask(self, port: PortMapping, path: str) -> AppAnswer:
        return AppAnswer()


class IdleMetrics:
    """Every machine has done nothing for an hour before the newest sample."""

    def __init__(self) -> None:
        self.newest = START

    async def samples(
        self, cloud_id: str, begin: datetime, end: datetime, interval: timedelta
    ) -> tuple[Utilization, ...]:
        return tuple(Utilization(self.newest - n * MINUTE, (0.0,), 1.0) for n in range(60))


@pytest.mark.proves("E5")
@pytest.mark.parametrize("by", ["our own clock", "the metrics of another machine"])
async def test_metrics_that_are_late_do_not_look_fresh_by_a_clock_that_was_set_back(by: str) -> None:
    clock, metrics = FakeClock(), IdleMetrics()
    services = cast(
        Services,
        SimpleNamespace(
            use_metrics=metrics,
            activity_probe=SilentApplication(),
            clock=clock,
            use_clock=UseClock(clock, START),
        ),
    )
    its = {"terms": Terms(idle=Idleness(1800)), "usable_at": START - timedelta(hours=3)}
    one, other = a_running_instance(1, **its), a_running_instance(2, **its)
    if by == "our own clock":
        services.use_clock.note_time()
    else:
        # Ours is behind the cloud's already.
        clock.jump_wall(-240)
        watch = await look_at_use(services, one)
        assert watch is not None and watch.ends_at is not None
    clock.jump_wall(-600)
    metrics.newest = clock.now() - MINUTE
    watch = await look_at_use(services, other)
    assert watch is not None and watch.ends_at is None
