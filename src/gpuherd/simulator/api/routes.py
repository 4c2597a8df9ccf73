"""What a route is: a method, a path under the API's base, and a function that answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from gpuherd.simulator.api.shapes import Json
from gpuherd.simulator.world.world import World

Values = Mapping[str, object]
"""The query of a GET or the JSON object of a POST."""

Answer = Callable[[World, Values], Awaitable[Json]]


class Route(NamedTuple):
    """One endpoint."""

    method: str
    path: str
    answer: Answer
