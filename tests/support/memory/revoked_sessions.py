"""Ended sessions in memory, with a way to be lost."""

from __future__ import annotations

from datetime import datetime

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.errors import StoreUnavailable


class MemoryRevokedSessions:
    """The port `RevokedSessions`."""

    def __init__(self) -> None:
        self.is_away = False
        self.reads = 0
        self.audit_records: list[AuditRecord] = []
        self._ended: dict[str, datetime] = {}

    async def add(self, session_id: str, expires_at: datetime, audit_record: AuditRecord) -> None:
        self._reach()
        if session_id not in self._ended:
            self._ended[session_id] = expires_at
            self.audit_records.append(audit_record)

    async def has(self, session_id: str) -> bool:
        self.reads += 1
        self._reach()
        return session_id in self._ended

    def _reach(self) -> None:
        if self.is_away:
            raise StoreUnavailable("gone")
