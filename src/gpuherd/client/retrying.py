"""Calls with retries: what is safe to repeat is repeated with backoff, everything else is sent once."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from gpuherd.client.clock import Clock
from gpuherd.client.effects import Effects, pause, send
from gpuherd.client.errors import ApiError, ConnectionFailed, GpuherdError, TooManyRequests
from gpuherd.client.transport.wire import Json, Reply, Request, answer_of

FIRST_DELAY_S = 0.25
DELAY_MAX_S = 8.0
# A longer Retry-After is not waited for: the error is raised at once.
RETRY_AFTER_MAX_S = 30.0


@dataclass(frozen=True)
class RetryPolicy:
    """How often, for how long, and on which statuses a request is retried."""

    tries: int
    # No try begins later than this after the first; None: no later than one try may take.
    span_s: float | None
    retry_statuses: frozenset[int]


DEFAULT_RETRIES = RetryPolicy(tries=5, span_s=None, retry_statuses=frozenset({429, 502, 503}))
NO_RETRIES = RetryPolicy(tries=1, span_s=None, retry_statuses=frozenset())


@dataclass(frozen=True)
class RetryingCaller:
    """Calls with retries: the clock, the random source, and the timeout of one attempt."""

    clock: Clock
    rng: random.Random
    timeout_s: float
    retries: RetryPolicy = DEFAULT_RETRIES

    def new_key(self) -> str:
        """Return a word that nobody else will use for a request."""
        return f"py-{self.rng.getrandbits(128):032x}"

    def call(self, request: Request, policy: RetryPolicy | None = None) -> Effects[Json]:
        """Return what the server says."""
        _, answer = yield from self.exchange(request, policy)
        return answer

    def change(
        self, method: str, path: str, body: Json | None = None, timeout_s: float | None = None
    ) -> Effects[Json]:
        """Change something; its key makes our own repeats safe."""
        key = self.new_key()
        return (
            yield from self.call(Request(method, path, body=body, idempotency_key=key, timeout_s=timeout_s))
        )

    def exchange(self, request: Request, policy: RetryPolicy | None = None) -> Effects[tuple[Reply, Json]]:
        """Return a good reply, and what it says."""
        policy = self.retries if policy is None else policy
        timeout_s = self.timeout_s if request.timeout_s is None else request.timeout_s
        request = replace(request, timeout_s=timeout_s)
        deadline = self.clock.monotonic() + (timeout_s if policy.span_s is None else policy.span_s)
        unsure = False
        for n in itertools.count(1):
            try:
                reply = yield from send(request)
                return reply, answer_of(request, reply)
            except GpuherdError as trouble:
                # One lost answer is enough: a refusal of the second try says nothing about the first.
                unsure = trouble.may_have_happened = unsure or trouble.may_have_happened
                trouble.idempotency_key = request.idempotency_key
                delay_s = self.delay_s(trouble, n, policy)
                if delay_s is None or n >= policy.tries or not request.is_repeatable:
                    raise
                if self.clock.monotonic() + delay_s > deadline:
                    raise
            yield from pause(delay_s)
        raise AssertionError("counting has no end")

    def backoff_s(self, n: int) -> float:
        """Return the pause before try `n + 1`: exponential, with jitter."""
        return min(FIRST_DELAY_S * 2.0 ** min(n - 1, 10), DELAY_MAX_S) * self.rng.uniform(0.5, 1.0)

    def delay_s(self, trouble: GpuherdError, n: int, policy: RetryPolicy) -> float | None:
        """Return how long to wait before the next try, or None if it would be in vain."""
        backoff_s = self.backoff_s(n)
        if isinstance(trouble, ConnectionFailed):
            return backoff_s
        if not isinstance(trouble, ApiError) or trouble.status not in policy.retry_statuses:
            return None
        asked_for_s = trouble.retry_after_s
        if asked_for_s is None:
            # A quota that is used up is a 429 as well, and waiting does not help against it.
            return None if isinstance(trouble, TooManyRequests) else backoff_s
        return None if asked_for_s > RETRY_AFTER_MAX_S else max(asked_for_s, backoff_s)
