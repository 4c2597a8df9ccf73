"""Actions that leave nothing but an entry of the audit log are bounded, and never left out of it."""

from __future__ import annotations

import pytest

from gpuherd.domain.access.api_key import Scope
from gpuherd.domain.access.audit import NO_HASH, AuditEntry, AuditRecord, chained
from gpuherd.domain.access.caller import Caller
from gpuherd.ports.access import AuditPage
from gpuherd.usecases.access.audit_trail import (
    REPEATS_BURST,
    REPEATS_PER_HOUR,
    AuditTrail,
    TooManyRepeats,
)
from tests.support.fake_clock import FakeClock

ADA, BOB = Caller("adaadaad", Scope.WRITE), Caller("bobbobbo", Scope.READ)
HOUR_S = 3600.0


class KeptLog:
    """The port `AuditLog`, in a list."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def append(self, audit_record: AuditRecord) -> AuditEntry:
        last_hash = self.entries[-1].hash if self.entries else NO_HASH
        self.entries.append(chained(audit_record, len(self.entries), last_hash))
        return self.entries[-1]

    async def page(self, limit: int, cursor: int | None = None, *, oldest_first: bool = False) -> AuditPage:
        return AuditPage(tuple(self.entries), len(self.entries), None)


async def done(trail: AuditTrail, caller: Caller, action: str, tries: int) -> int:
    """Do something as often, and return how often it was allowed."""
    allowed = 0
    for _ in range(tries):
        try:
            await trail.append(caller, action, "it")
            allowed += 1
        except TooManyRepeats:
            pass
    return allowed


async def test_a_key_cannot_grow_the_log_without_bound() -> None:
    log, clock = KeptLog(), FakeClock()
    trail = AuditTrail(log, clock)
    assert await done(trail, ADA, "webhook.test", 1000) == REPEATS_BURST
    await clock.advance(HOUR_S)
    assert await done(trail, ADA, "webhook.test", 1000) == REPEATS_PER_HOUR
    assert len(log.entries) == REPEATS_BURST + REPEATS_PER_HOUR


async def test_who_is_refused_is_told_when_to_come_back() -> None:
    trail = AuditTrail(KeptLog(), FakeClock())
    await done(trail, ADA, "session.open", REPEATS_BURST)
    with pytest.raises(TooManyRepeats) as refused:
        await trail.append(ADA, "session.open", ADA.key_id)
    assert refused.value.retry_after_s == pytest.approx(HOUR_S / REPEATS_PER_HOUR)


async def test_neither_another_key_nor_another_action_is_held_up() -> None:
    trail = AuditTrail(KeptLog(), FakeClock())
    await done(trail, ADA, "webhook.test", REPEATS_BURST + 1)
    assert await done(trail, BOB, "webhook.test", 1) == 1
    assert await done(trail, ADA, "cloud.sync", 1) == 1


async def test_admins_have_no_bound() -> None:
    trail = AuditTrail(KeptLog(), FakeClock())
    admin = Caller("admin", Scope.ADMIN)
    assert await done(trail, admin, "delivery.replay", REPEATS_BURST + 5) == REPEATS_BURST + 5
