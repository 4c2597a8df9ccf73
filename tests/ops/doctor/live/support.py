"""Novita without a network: the simulator's answers, in virtual time, as the adapter would read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from gpuherd.adapters.novita.novita_call import NovitaReply, read_reply
from gpuherd.ops.doctor.live.calls import NovitaCalls
from gpuherd.simulator.api.app import API_ROUTES, BASE_PATH, answered
from gpuherd.simulator.api.deviations import headers_as
from gpuherd.simulator.api.shapes import error_shape
from gpuherd.simulator.errors import SimulatedError
from gpuherd.simulator.operations import CloudOperations
from gpuherd.simulator.scenarios import apply_scenario
from gpuherd.simulator.world.world import World
from tests.support.fake_clock import FakeClock

_ROUTES = {(it.method, base + it.path): it for base, routes in API_ROUTES.items() for it in routes}


class InProcessExchange:
    """Carries calls to a simulated world, without a socket."""

    def __init__(self, world: World) -> None:
        self._operations = CloudOperations(world)
        self.asked: list[tuple[str, str]] = []

    async def get(
        self, path: str, params: Mapping[str, str], timeout_s: float, *, fresh: bool
    ) -> NovitaReply:
        return await self._send("GET", path, params)

    async def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> NovitaReply:
        return await self._send("POST", path, body)

    async def _send(self, method: str, path: str, values: Mapping[str, Any]) -> NovitaReply:
        whole_path = path if path.startswith("/openapi/") else BASE_PATH + path
        self.asked.append((method, path))
        headers = dict(headers_as(self._operations.world.deviations))
        try:
            body, status = await answered(self._operations, _ROUTES[method, whole_path], values), 200
        except SimulatedError as error:
            body, status = error_shape(error), error.status
            headers |= error.headers
        wait = headers.get("Retry-After")
        return read_reply(
            status, json.dumps(body).encode(), None if wait is None else float(wait), headers=headers
        )


class LiveWorld:
    """A simulated Novita and the doctor's way to it."""

    def __init__(self, scenario: str = "calm") -> None:
        self.clock = FakeClock(auto=True)
        self.world = World(self.clock, Random(7))
        apply_scenario(self.world, scenario)
        self.exchange = InProcessExchange(self.world)
        self.calls = NovitaCalls(self.exchange, self.clock, 0.8)
