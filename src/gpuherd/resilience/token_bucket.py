"""A token bucket whose rate falls after a refusal and recovers with time.

It is pure: callers pass the time.
"""

from __future__ import annotations

import math

SHARE_MIN = 1 / 16


# A tenth of the nominal rate returns with each minute without a refusal, as a ramp.
SHARE_REGAINED_PER_S = 0.1 / 60


# Refusals this close together answer calls that were already sent. They halve the rate once.
SAME_BURST_S = 1.0


# Float errors may leave a wait slightly short of a whole token.
_EPSILON = 1e-6


class TokenBucket:
    """At most `burst` tokens at once, refilled at `per_s` times the present share.

    `per_s` of 0 means unlimited; a pause that the server requested applies anyway.
    """

    def __init__(self, per_s: float, burst: int, now: float) -> None:
        if per_s < 0 or burst < 1:
            raise ValueError("the rate must not be negative and the burst must be at least 1")
        self._per_s = per_s
        self._burst = float(burst) if per_s else math.inf
        self._tokens = self._burst
        self._filled_at = now  # lies in the future during a pause: no tokens arrive until then
        self._calm_since = now
        self._share_at_calm = 1.0
        self._halved_at = -math.inf

    def resize(self, per_s: float, burst: int, now: float) -> None:
        """Change the rate and the burst from now on."""
        self._refill(now)
        self._per_s = per_s
        self._burst = float(burst) if per_s else math.inf
        self._tokens = min(self._tokens, self._burst)

    def take(self, now: float) -> bool:
        self._refill(now)
        if now < self._filled_at:
            return False
        if self._missing(1) > 0:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        self._tokens = min(self._tokens + 1, self._burst)

    def wait_s(self, now: float, tokens: int = 1) -> float:
        """Return the seconds until that many tokens are available, if none is taken meanwhile."""
        self._refill(now)
        missing = self._missing(tokens)
        if missing == 0:
            return self._filled_at - now
        enough = self._inflow(self._filled_at - self._calm_since) + missing
        return self._calm_since + self._time_for(enough) - now

    def throttle(self, now: float, pause_s: float) -> None:
        """React to a refusal: half the rate, and nothing at all for `pause_s`."""
        self._refill(now)
        share = self.share(now)
        if now - self._halved_at >= SAME_BURST_S:
            share = max(SHARE_MIN, share / 2)
            self._halved_at = now
        # One call tests the server. A saved burst would only be refused again.
        if self._per_s:
            self._tokens = min(self._tokens, 1.0)
        self._filled_at = max(self._filled_at, now + pause_s)
        self._calm_since = self._filled_at
        self._share_at_calm = share

    def share(self, now: float) -> float:
        """Return the part of the nominal rate that is allowed now, pauses aside."""
        calm_s = max(0.0, now - self._calm_since)
        return min(1.0, self._share_at_calm + SHARE_REGAINED_PER_S * calm_s)

    def _missing(self, tokens: int) -> float:
        missing = tokens - self._tokens
        return 0.0 if missing <= _EPSILON else missing

    def _refill(self, now: float) -> None:
        if now <= self._filled_at:
            return
        gained = self._inflow(now - self._calm_since) - self._inflow(self._filled_at - self._calm_since)
        self._tokens = min(self._tokens + gained, self._burst)
        self._filled_at = now

    @property
    def _ramp_s(self) -> float:
        return (1.0 - self._share_at_calm) / SHARE_REGAINED_PER_S

    def _inflow(self, calm_s: float) -> float:
        """Return the tokens of the first `calm_s` seconds: the area under a ramp, then under a flat line."""
        ramp_s = min(calm_s, self._ramp_s)
        on_ramp = self._share_at_calm * ramp_s + SHARE_REGAINED_PER_S * ramp_s**2 / 2
        return self._per_s * (on_ramp + calm_s - ramp_s)

    def _time_for(self, tokens: float) -> float:
        """Invert `_inflow`."""
        on_ramp = self._inflow(self._ramp_s)
        if tokens >= on_ramp:
            return self._ramp_s + (tokens - on_ramp) / self._per_s
        area = tokens / self._per_s
        root = math.sqrt(self._share_at_calm**2 + 2 * SHARE_REGAINED_PER_S * area)
        return (root - self._share_at_calm) / SHARE_REGAINED_PER_S
