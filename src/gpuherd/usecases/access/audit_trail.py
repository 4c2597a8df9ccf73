"""Audit trail: who did what."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.errors import GpuherdError
from gpuherd.ports.access import AuditLog, AuditPage
from gpuherd.resilience.token_bucket import TokenBucket

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
