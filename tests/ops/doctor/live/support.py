"""Novita without a network: the simulator's answers, in virtual time, as the adapter reads them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from gpuherd.ops.live_assumptions import NovitaCalls
from gpuherd.simulator.simulator_app import BASE_PATH
from gpuherd.simulator.simulator_control import apply_scenario
from gpuherd.simulator.wire_reply import WireReply
from gpuherd.simulator.world import World
from tests.support.deviating_cloud import (
    DEVIATING_SCENARIOS,
    Deviation,
    PortsKeptWorld,
    deviating_exchange,
)
from tests.support.fake_clock import FakeClock
from tests.support.simulated_cloud import WorldExchange


class LiveWorld:
    """A simulated Novita, and the doctor's way to it."""

    def __init__(self, scenario: str = "calm") -> None:
        self.clock = FakeClock(auto=True)
        deviation, faults = DEVIATING_SCENARIOS.get(scenario, (None, ()))
        make = PortsKeptWorld if deviation is Deviation.PORTS_KEPT else World
        self.world = make(self.clock, Random(7))
        if deviation is None:
            apply_scenario(self.world, scenario)
        self.world.faults.add(*faults)
        self.asked: list[tuple[str, str]] = []
        self._documented = deviating_exchange(self.world, () if deviation is None else (deviation,))
        self.calls = NovitaCalls(WorldExchange(self.world, call=self.call), self.clock, 0.8)

    async def call(
        self, method: str, path: str, authorization: str, content: Mapping[str, object] | bytes
    ) -> WireReply:
        """Note a call, and answer it."""
        self.asked.append((method, path.removeprefix(BASE_PATH)))
        return await self._documented(method, path, authorization, content)
