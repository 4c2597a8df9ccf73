"""One rate limit for several processes: a token bucket that leases tokens for a moment, pure, given the time.

A process may spend what it has leased until the lease expires; what is not spent by then is void. As long as
tokens may still be spent, the bucket keeps room for them. So what it holds and what is leased are together
never more than the burst, and grow no faster than the rate: however many lease, and whenever one of them
dies, they spend at most the burst and what the rate gives in the time that it takes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpuherd.resilience.token_bucket import BucketState, TokenBucket

LEASE_S, LEASE_MIN_S = 1.0, 0.25

# One who asks gets more than it needs only while there is enough for so many others to do the same.
BATCH_RESERVE = 4


@dataclass(frozen=True, slots=True)
class Limit:
    """So many in the long run and so many at once, of which a process may borrow a batch in advance."""

    per_minute: float
    burst: int
    batch: int = 1

    def __post_init__(self) -> None:
        if self.per_minute <= 0 or self.burst < 1 or self.batch < 1:
            raise ValueError("the rate must be positive, the burst and the batch at least 1")

    @property
    def lease_s(self) -> float:
        """How long borrowed tokens are good: not so long that those of a fast rate fill the bucket's room."""
        return max(LEASE_MIN_S, min(LEASE_S, 15 * self.burst / self.per_minute))


@dataclass(frozen=True, slots=True)
class ReturnedTokens:
    """Tokens that were lent in one period and are gone for certain."""

    period: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TokenLease:
    """What was lent, and if that is less than was wanted, when the next one can be had."""

    granted: int
    wait_s: float
    # The part of the nominal rate that is allowed now.
    share: float
    period: int


@dataclass(slots=True)
class _Outstanding:
    """What may still be spent of this period and of the one before; those of earlier ones are void."""

    period: int = 0
    left_s: float = 0.0
    now: int = 0
    before: int = 0

    @property
    def out(self) -> int:
        return self.now + self.before

    def next_period(self, length_s: float) -> None:
        self.before, self.now = self.now, 0
        self.period += 1
        self.left_s += length_s

    def settle(self, returned: ReturnedTokens) -> None:
        if returned.period == self.period:
            self.now = max(0, self.now - returned.tokens)
        elif returned.period == self.period - 1:
            self.before = max(0, self.before - returned.tokens)


class TokenLeaseBucket:
    """Made from what `doc` returned `elapsed_s` ago, or full; lives for one draw."""

    def __init__(self, limit: Limit, doc: dict[str, Any] | None = None, elapsed_s: float = 0.0) -> None:
        self._limit = limit
        self._now = max(0.0, elapsed_s)
        state, loans = _read(doc, limit)
        self._loans = loans
        self._bucket = TokenBucket.restored(limit.per_minute / 60, limit.burst, state, at=0.0)
        self._bucket.reserve(loans.out, 0.0)
        self._advance()

    def lease(self, wanted: int, returned: ReturnedTokens | None = None) -> TokenLease:
        """Lend what is wanted, as far as there is; in plenty a whole batch."""
        if returned is not None:
            self._loans.settle(returned)
            self._bucket.reserve(self._loans.out, self._now)
        whole, batch = self._bucket.whole(self._now), self._limit.batch
        granted = min(wanted, whole)
        if wanted and whole >= BATCH_RESERVE * batch:
            granted = max(granted, batch)
        self._bucket.take_many(granted)
        self._loans.now += granted
        self._bucket.reserve(self._loans.out, self._now)
        return self._answer(granted, 0.0 if granted >= wanted else self._wait_s())

    def throttle(self, pause_s: float) -> TokenLease:
        """Yield to a refusal, as `TokenBucket` does."""
        self._bucket.throttle(self._now, pause_s)
        return self._answer(0, self._wait_s())

    def doc(self) -> dict[str, Any]:
        """Return how it stands now, in words for the database."""
        loans = asdict(self._loans)
        loans["left_s"] -= self._now
        return {"bucket": asdict(self._bucket.state(self._now)), "loans": loans}

    def _advance(self) -> None:
        """Go on to now, period by period: room that comes free is filled from then on, not from before."""
        loans, length_s = self._loans, self._limit.lease_s
        while loans.left_s <= self._now and loans.out:
            ended_s = loans.left_s
            loans.next_period(length_s)
            self._bucket.reserve(loans.out, ended_s)
        if loans.left_s <= self._now:
            loans.period += 1
            loans.left_s = self._now + length_s

    def _wait_s(self) -> float:
        wait_s = self._bucket.wait_s(self._now)
        if self._limit.burst - self._loans.out < 1:
            # All are out; there is no room before the oldest of them are void.
            return max(wait_s, self._loans.left_s - self._now)
        return wait_s

    def _answer(self, granted: int, wait_s: float) -> TokenLease:
        return TokenLease(granted, wait_s, self._bucket.share(self._now), self._loans.period)


def _read(doc: dict[str, Any] | None, limit: Limit) -> tuple[BucketState, _Outstanding]:
    if doc is None:
        return BucketState(float(limit.burst)), _Outstanding()
    return BucketState(**doc["bucket"]), _Outstanding(**doc["loans"])
