"""Idempotency keys and the audit log of requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from gpuherd.domain.api_key import Caller
from gpuherd.domain.errors import GpuherdError
from gpuherd.ports.access_port import (
    AuditLog,
    IdempotencyClaim,
    StoredReply,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.token_bucket import TokenBucket
from gpuherd.usecases.services import Services


async def answer_once(
    services: Services, claim: IdempotencyClaim, answer: Callable[[], Awaitable[StoredReply | None]]
) -> StoredReply | None:
    """Return the stored reply of an earlier request, or None after `answer` has made and stored one.

    `answer` returns None for a reply that a repetition may change; then nothing is stored. This is for
    requests that do not save their claim in a transaction of their own.
    """
    if (stored := await services.stores.claims.begin(claim)) is not None:
        return stored
    try:
        reply = await answer()
    except BaseException:
        await services.stores.claims.release(claim)
        raise
    if reply is None:
        await services.stores.claims.release(claim)
    else:
        await services.stores.claims.finish(claim, reply)
    return None


# Fields of a body whose values count as secrets.
SECRET_FIELDS = ("envs", "value")


def claim_request(services: Services, key_id: str, key: str, *asked: str, body: Any) -> IdempotencyClaim:
    """Return the claim of a request. Two requests are equal if `asked` and body are; the order of fields and
    blanks do not count."""
    text = json.dumps([*asked, body], sort_keys=True, separators=(",", ":"))
    now, *earlier = _fingerprints(services, text, body)
    return IdempotencyClaim(key_id, key, now, tuple(earlier))


def _fingerprints(services: Services, text: str, body: Any) -> tuple[str, ...]:
    """Return the fingerprint, and the fingerprints with earlier keys.

    The fingerprint is stored. For a body with secrets it is keyed, because a short secret could be guessed
    from a plain hash.
    """
    if isinstance(body, dict) and any(body.get(name) for name in SECRET_FIELDS):
        return services.sealer.digests(text)
    return (hashlib.sha256(text.encode()).hexdigest(),)


# How often each key may do one action at once, and then per hour: much more than a person or a script needs,
# and little enough for the log, which keeps every entry for a year.
REPEATS_BURST = 600


REPEATS_PER_HOUR = 120


class TooManyRepeats(GpuherdError):
    """A key repeats one action more often than the audit log may hold."""

    code = "TOO_MANY_REPEATS"

    def __init__(self, message: str, retry_after_s: float):
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class AuditTrail:
    """Appends the records of actions that store nothing else: a sign-in, a test webhook, a sync.

    Nothing else bounds how many such records there are. Above a rate the action is rejected, not left out of
    the log. Admins have no bound.
    """

    log: AuditLog
    clock: Clock
    _buckets: dict[tuple[str, str], TokenBucket] = field(default_factory=dict)

    async def append(
        self, caller: Caller, action: str, target: str, *, before: str = "", after: str = ""
    ) -> None:
        """Append a record before an action. If this fails, the action must not be done."""
        if not caller.sees_all:
            self._count(caller.key_id, action)
        await self.log.append(caller.audit_record(action, target, self.clock.now(), before, after))

    def _count(self, key_id: str, action: str) -> None:
        now = self.clock.monotonic()
        bucket = self._buckets.get((key_id, action))
        if bucket is None:
            bucket = TokenBucket(REPEATS_PER_HOUR / 3600, REPEATS_BURST, now)
            self._buckets[key_id, action] = bucket
        if not bucket.take(now):
            wait_s = bucket.wait_s(now)
            raise TooManyRepeats(
                f"this key has done {action} too often, so it was not done: {REPEATS_BURST} at once and"
                f" {REPEATS_PER_HOUR} an hour are allowed",
                wait_s,
            )
