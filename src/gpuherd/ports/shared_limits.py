"""What replicas share of their limits in their common database; times are told in seconds, by its clock."""

from __future__ import annotations

from typing import Protocol

from gpuherd.resilience.circuit_breaker import Standing
from gpuherd.resilience.lending_bucket import Drawn, Limit, Spent


class Budgets(Protocol):
    """Limits by name. Each begins full. `StoreUnavailable` lends nothing."""

    async def draw(self, name: str, limit: Limit, wanted: int, spent: Spent | None = None) -> Drawn:
        """Lend tokens for `limit.hold_s`; `spent` are those of an earlier loan that nobody will spend now."""
        ...

    async def throttle(self, name: str, limit: Limit, pause_s: float) -> Drawn:
        """Note a refusal by the other side: half the rate for all, and nothing for `pause_s`."""
        ...

    async def look(self, name: str, limit: Limit) -> Drawn:
        """Tell how it stands, and lend nothing."""
        ...


class BreakerBoard(Protocol):
    """Where replicas tell each other whether calls are made at all."""

    async def read(self) -> tuple[int, Standing]:
        """Return how it stands, and the number of the change that made it so: 0 if there was none ever."""
        ...

    async def write(self, standing: Standing, number: int) -> bool:
        """Make the change after that number; False if somebody else has made it."""
        ...
