"""Ended sessions in memory, with a way to be lost."""

from __future__ import annotations

from datetime import datetime

from gpuherd.domain.audit import Deed
from gpuherd.domain.errors import StoreUnavailable


class MemoryEndedSessions:
    """The port `EndedSessions`."""

    def __init__(self) -> None:
        self.is_away = False
        self.reads = 0
        self.deeds: list[Deed] = []
        self._ended: dict[str, datetime] = {}

    async def add(self, session_id: str, expires_at: datetime, deed: Deed) -> None:
        self._reach()
        if session_id not in self._ended:
            self._ended[session_id] = expires_at
            self.deeds.append(deed)

    async def has(self, session_id: str) -> bool:
        self.reads += 1
        self._reach()
        return session_id in self._ended

    def _reach(self) -> None:
        if self.is_away:
            raise StoreUnavailable("gone")
