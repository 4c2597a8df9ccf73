"""The metrics of the simulated cloud, recorded, and now and then without one sample in the middle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from gpuherd.domain.instance.idleness import Utilization
from gpuherd.simulator.simulated_bill import Use
from gpuherd.simulator.world import World
from tests.support.simulated_cloud import SimulatedMetrics

# A busy spell is longer than the samples are apart, so that one of them shows it.
BLIP_S = 70.0
IDLE, ON_CPU, BUSY = (0.0, 1.0), (0.0, 60.0), (80.0, 40.0)


class RecordedMetrics(SimulatedMetrics):
    """The port `UseMetrics`."""

    def __init__(
        self,
        world: World,
        rng: Random,
        hole_probability: float,
        on_samples: Callable[[str, tuple[Utilization, ...]], None],
    ):
        super().__init__(world)
        self._rng = rng
        self._hole_probability = hole_probability
        self._on_samples = on_samples

    async def samples(
        self, cloud_id: str, begin: datetime, end: datetime, interval: timedelta
    ) -> tuple[Utilization, ...]:
        found = await super().samples(cloud_id, begin, end, interval)
        if len(found) > 2 and self._rng.random() < self._hole_probability:
            hole = self._rng.randrange(1, len(found) - 1)
            found = (*found[:hole], *found[hole + 1 :])
        self._on_samples(cloud_id, found)
        return found


def use_trace(style: str, now: float, rng: Random) -> list[Use]:
    """Return how a machine is used from now on."""
    match style:
        case "zero":
            return [Use(now, *IDLE)]
        case "cpu":
            return [Use(now, *ON_CPU)]
        case "ends":
            return [Use(now + rng.uniform(0.0, 900.0), *IDLE)]
        case "begins":
            return [Use(now, *IDLE), Use(now + rng.uniform(600.0, 1500.0), *BUSY)]
        case "blips":
            trace, at = [Use(now, *IDLE)], now
            for _ in range(12):
                at += rng.uniform(200.0, 800.0)
                trace += [Use(at, *BUSY), Use(at + BLIP_S, *IDLE)]
                at += BLIP_S
            return trace
        case _:
            return []
