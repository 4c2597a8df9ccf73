"""Asking with patience: what may be repeated is repeated a few times, everything else is asked once."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from gpuherd.client.clock import Clock
from gpuherd.client.errors import ApiError, ConnectionFailed, GpuherdError, TooManyRequests
from gpuherd.client.steps import Steps, pause, send
from gpuherd.client.wire import Json, Reply, Request, answer_of

FIRST_DELAY_S = 0.25
DELAY_MAX_S = 8.0
# Whoever says "in an hour" is believed, but nobody sits and waits for it.
RETRY_AFTER_MAX_S = 30.0


@dataclass(frozen=True)
class Patience:
    """How often, for how long, and in spite of which refusals a request is repeated."""

    tries: int
    # No try begins later than this after the first; None: no later than one try may take.
    span_s: float | None
    temporary: frozenset[int]


PATIENT = Patience(tries=5, span_s=None, temporary=frozenset({429, 502, 503}))
ONCE = Patience(tries=1, span_s=None, temporary=frozenset())


@dataclass(frozen=True)
class Asker:
    """How this client asks: its clock, its chance, and how long one answer may take."""

    clock: Clock
    chance: random.Random
    timeout_s: float

    def new_key(self) -> str:
        """Return a word that nobody else will use for a request."""
        return f"py-{self.chance.getrandbits(128):032x}"

    def ask(self, request: Request, patience: Patience = PATIENT) -> Steps[Json]:
        """Return what the server says."""
        _, answer = yield from self.exchange(request, patience)
        return answer

    def change(self, method: str, path: str, body: Json | None = None) -> Steps[Json]:
        """Change something; its key makes our own repeats safe."""
        return (yield from self.ask(Request(method, path, body=body, idempotency_key=self.new_key())))

    def exchange(self, request: Request, patience: Patience = PATIENT) -> Steps[tuple[Reply, Json]]:
        """Return a good reply, and what it says."""
        timeout_s = self.timeout_s if request.timeout_s is None else request.timeout_s
        request = replace(request, timeout_s=timeout_s)
        deadline = self.clock.monotonic() + (timeout_s if patience.span_s is None else patience.span_s)
        unsure = False
        for n in itertools.count(1):
            try:
                reply = yield from send(request)
                return reply, answer_of(request, reply)
            except GpuherdError as trouble:
                # One lost answer is enough: a refusal of the second try says nothing about the first.
                unsure = trouble.may_have_happened = unsure or trouble.may_have_happened
                trouble.idempotency_key = request.idempotency_key
                delay_s = self.delay_s(trouble, n, patience)
                if delay_s is None or n >= patience.tries or not request.is_repeatable:
                    raise
                if self.clock.monotonic() + delay_s > deadline:
                    raise
            yield from pause(delay_s)
        raise AssertionError("counting has no end")

    def delay_s(self, trouble: GpuherdError, n: int, patience: Patience) -> float | None:
        """Return how long to wait before the next try, or None if it would be in vain."""
        backoff_s = min(FIRST_DELAY_S * 2.0 ** min(n - 1, 10), DELAY_MAX_S) * self.chance.uniform(0.5, 1.0)
        if isinstance(trouble, ConnectionFailed):
            return backoff_s
        if not isinstance(trouble, ApiError) or trouble.status not in patience.temporary:
            return None
        asked_for_s = trouble.retry_after_s
        if asked_for_s is None:
            # A quota that is used up is a 429 as well, and waiting does not help against it.
            return None if isinstance(trouble, TooManyRequests) else backoff_s
        return None if asked_for_s > RETRY_AFTER_MAX_S else max(asked_for_s, backoff_s)
