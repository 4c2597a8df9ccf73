"""Message pace: chats take so many messages a second of one webhook, and refuse the rest of a burst.

To be refused uses up tries and looks like a host that fails, so a burst is spread before it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.domain.webhooks.endpoint import WebhookEndpoint
from gpuherd.resilience.token_bucket import TokenBucket

# Who comes later than that asks again: the line may be shorter by then.
TURN_MAX_S = 30.0
# Those of removed endpoints are forgotten, oldest first.
REMEMBERED_MAX = 100


@dataclass
class _Pace:
    bucket: TokenBucket
    # When the last of those who wait may try.
    last_turn: float = 0.0


class MessagePace:
    """Non-blocking: says at once whether a message may go, or after how many seconds to ask again."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._paces: dict[str, _Pace] = {}

    def take(self, endpoint: WebhookEndpoint | None) -> float:
        """Take a turn and return 0, or return after how many seconds to ask again."""
        pace = self._pace_of(endpoint)
        if endpoint is None or pace is None:
            return 0.0
        now = self._clock.monotonic()
        if pace.bucket.take(now):
            return 0.0
        turn = max(pace.last_turn + 1 / endpoint.kind.messages_per_s, now + pace.bucket.wait_s(now))
        if turn - now > TURN_MAX_S:
            # The line is as long as anybody can foresee; the others form a new one behind it.
            pace.last_turn = now
            return TURN_MAX_S
        pace.last_turn = turn
        return turn - now

    def give_back(self, endpoint: WebhookEndpoint | None) -> None:
        """A turn was not used after all."""
        if pace := self._pace_of(endpoint):
            pace.bucket.give_back()

    def throttled(self, endpoint: WebhookEndpoint | None, pause_s: float) -> None:
        """It was too much all the same: be slower, and let nobody go for so long."""
        if pace := self._pace_of(endpoint):
            pace.bucket.throttle(self._clock.monotonic(), pause_s)

    def _pace_of(self, endpoint: WebhookEndpoint | None) -> _Pace | None:
        if endpoint is None or not endpoint.kind.messages_per_s:
            return None
        found = self._paces.get(endpoint.id)
        if found is None:
            bucket = TokenBucket(endpoint.kind.messages_per_s, 1, self._clock.monotonic())
            found = self._paces[endpoint.id] = _Pace(bucket)
            if len(self._paces) > REMEMBERED_MAX:
                del self._paces[next(iter(self._paces))]
        return found
