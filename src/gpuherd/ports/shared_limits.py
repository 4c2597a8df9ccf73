"""The rate limits and the breaker state that replicas share in their common database.

Times are told in seconds, by its clock.
"""

from __future__ import annotations

from typing import Protocol

from gpuherd.resilience.circuit_breaker import SharedBreakerState
from gpuherd.resilience.token_lease_bucket import Limit, ReturnedTokens, TokenLease


class SharedLimits(Protocol):
    """Limits by name. Each begins full. `StoreUnavailable` lends nothing."""

    async def lease(
        self, name: str, limit: Limit, wanted: int, returned: ReturnedTokens | None = None
    ) -> TokenLease:
        """Lend tokens for `limit.lease_s`.

        `returned` are those of an earlier loan that nobody will spend now.
        """
        ...

    async def throttle(self, name: str, limit: Limit, pause_s: float) -> TokenLease:
        """Note a refusal by the other side: half the rate for all, and nothing for `pause_s`."""
        ...

    async def look(self, name: str, limit: Limit) -> TokenLease:
        """Tell how it stands, and lend nothing."""
        ...


class BreakerStore(Protocol):
    """Where replicas tell each other whether calls are made at all."""

    async def read(self) -> tuple[int, SharedBreakerState]:
        """Return how it stands, and the number of the change that made it so: 0 if there was none ever."""
        ...

    async def write(self, shared_state: SharedBreakerState, number: int) -> bool:
        """Make the change after that number; False if somebody else has made it."""
        ...
