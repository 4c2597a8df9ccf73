"""Tells of orphans: on the instance that a machine's tag names, else on the account as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from gpuherd.clock import Clock
from gpuherd.domain import events
from gpuherd.domain.events import ACCOUNT, Event
from gpuherd.domain.orphan import Orphan, OrphanVerdict, Records
from gpuherd.ports.orphans import AccountNews, Entry
from gpuherd.usecases.chronicle import Chronicle, News
from gpuherd.usecases.describe import usd

log = structlog.get_logger()


@dataclass(frozen=True)
class OrphanNews:
    """Makes the entries of new lines."""

    chronicle: Chronicle
    clock: Clock

    def detected(self, orphan: Orphan, records: Records) -> Entry:
        """Return a new line with the event that tells of it."""
        reason, details = orphan.finding.reason, _details(orphan)
        instance = records.bound or records.named
        if instance is not None and orphan.finding.instance_id == instance.id:
            news = News(events.ORPHAN_DETECTED, reason, details)
            return Entry(orphan, change=self.chronicle.change(instance, news))
        told = Event(ACCOUNT, 0, events.ORPHAN_DETECTED, self.clock.now(), reason=reason, details=details)
        return Entry(orphan, account=AccountNews(told, self.chronicle.tell_account))

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


def _details(orphan: Orphan) -> dict[str, Any]:
    return {
        "cloudInstanceId": orphan.cloud_id,
        "verdict": orphan.verdict.value,
        "hourlyPrice": usd(orphan.hourly_usd),
        "productName": orphan.machine.product_name or None,
        "region": orphan.machine.region or None,
    }
