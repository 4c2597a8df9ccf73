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
    AuditPage,
    IdempotencyClaim,
    IdempotencyStore,
    Sealer,
    StoredReply,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.token_bucket import TokenBucket


@dataclass(frozen=True)
class AnswerOnce:
    """For requests that do not keep their claim in a transaction of their own."""

    claims: IdempotencyStore

    async def __call__(
        self, claim: IdempotencyClaim, answer: Callable[[], Awaitable[StoredReply | None]]
    ) -> StoredReply | None:
        """Return the reply that is stored already; else None, once `answer` was asked for one to store.

        It gives None for a reply that a repetition may change, and nothing is stored then.
        """
        if (stored := await self.claims.begin(claim)) is not None:
            return stored
        try:
            reply = await answer()
        except BaseException:
            await self.claims.release(claim)
            raise
        if reply is None:
            await self.claims.release(claim)
        else:
            await self.claims.finish(claim, reply)
        return None


# Fields of a body whose values count as secrets.
# guard: no hash from which a registry password could be guessed
SECRET_FIELDS = ("envs", "value", "password")


@dataclass(frozen=True)
class ClaimRequest:
    sealer: Sealer

    def __call__(self, key_id: str, key: str, *asked: str, body: Any) -> IdempotencyClaim:
        """Requests are the same if `asked` and body are; the order of fields, and blanks, do not count."""
        text = json.dumps([*asked, body], sort_keys=True, separators=(",", ":"))
        now, *earlier = self._fingerprints(text, body)
        return IdempotencyClaim(key_id, key, now, tuple(earlier))

    def _fingerprints(self, text: str, body: Any) -> tuple[str, ...]:
        """Return the fingerprint, and what it was with earlier keys.

        It is stored. Of a body with secrets it is keyed: from a plain hash a short secret could be guessed.
        """
        if isinstance(body, dict) and any(body.get(name) for name in SECRET_FIELDS):
            return self.sealer.digests(text)
        return (hashlib.sha256(text.encode()).hexdigest(),)


# What each key may do of one kind at once, and then an hour: much more than a person or a script needs, and
# little enough for the log, which keeps every entry for a year.
REPEATS_BURST = 600


REPEATS_PER_HOUR = 120


class TooManyRepeats(GpuherdError):
    """A key does again and again what is not worth so many entries of the audit log."""

    code = "TOO_MANY_REPEATS"

    def __init__(self, message: str, retry_after_s: float):
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class AuditTrail:
    """Most records are written in the transaction of what they tell of; these are for everything else.

    Such actions (a sign-in, a test webhook, a sync) leave nothing behind but their record, so nothing else
    bounds how many there are. They are refused above a rate rather than left out of the log: what was done
    is in it. Admins are trusted with the disk.
    """

    log: AuditLog
    clock: Clock
    _buckets: dict[tuple[str, str], TokenBucket] = field(default_factory=dict)

    async def append(
        self, caller: Caller, action: str, target: str, *, before: str = "", after: str = ""
    ) -> None:
        """Append a record just before an action; if that fails, the action must not be done."""
        if not caller.sees_all:
            self._count(caller.key_id, action)
        await self.log.append(caller.audit_record(action, target, self.clock.now(), before, after))

    async def page(self, limit: int, cursor: int | None = None, *, oldest_first: bool = False) -> AuditPage:
        """Return entries, newest first unless told otherwise."""
        return await self.log.page(limit, cursor, oldest_first=oldest_first)

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
