"""The event of a detected orphan: on the instance that its tag names, else on the account."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.codec.model import encode
from gpuherd.contract.codec.values import usd
from gpuherd.domain.instance import events
from gpuherd.domain.instance.events import ACCOUNT, Event
from gpuherd.domain.orphans.orphan import MachineRecords, Orphan, OrphanVerdict
from gpuherd.ports.events import AccountEvent
from gpuherd.ports.orphans import LedgerWrite
from gpuherd.ports.webhooks import OutboxEntries
from gpuherd.usecases.describe.orphan import describe_notice
from gpuherd.usecases.events.record import EventRecorder, NewEvent

log = structlog.get_logger()


@dataclass(frozen=True)
class OrphanEvents:
    """Makes the entries of new lines."""

    event_recorder: EventRecorder
    clock: Clock

    def detected(self, orphan: Orphan, records: MachineRecords) -> LedgerWrite:
        """Return a new line with the event that tells of it."""
        reason, details = orphan.finding.reason, encode(describe_notice(orphan))
        instance = records.bound or records.named
        if instance is not None and orphan.finding.instance_id == instance.id:
            new_event = NewEvent(events.ORPHAN_DETECTED, reason, details)
            return LedgerWrite(orphan, change=self.event_recorder.change(instance, new_event))
        told = Event(ACCOUNT, 0, events.ORPHAN_DETECTED, self.clock.now(), reason=reason, details=details)
        return LedgerWrite(orphan, account=(self._account_event(told),))

    def with_alarm(self, entry: LedgerWrite, reason: str) -> LedgerWrite:
        """Return a new line that also tells that its machine has raised the installation alarm."""
        details = {"cloudInstanceId": entry.orphan.cloud_id}
        told = Event(ACCOUNT, 0, events.INSTALLATION_SHARED, self.clock.now(), reason=reason, details=details)
        return replace(entry, account=(*entry.account, AccountEvent(told, lambda _: OutboxEntries())))

    def _account_event(self, told: Event) -> AccountEvent:
        return AccountEvent(told, self.event_recorder.account_outbox_entries)

    def log(self, orphan: Orphan) -> None:
        """Say once that a machine was found that nobody asked for."""
        note = log.info if orphan.verdict is OrphanVerdict.FOREIGN else log.warning
        note(
            "orphan.detected",
            cloud_id=orphan.cloud_id,
            verdict=orphan.verdict.value,
            instance_id=orphan.finding.instance_id,
            hourly_usd=usd(orphan.hourly_usd),
        )
