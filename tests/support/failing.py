"""A port whose every call fails."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any


class Failing:
    """Stands in the place of a port, and raises the same error whatever it is asked."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def fail(*_: object, **__: object) -> Any:
            raise self._error

        return fail
