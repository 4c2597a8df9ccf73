"""Single facts about the whole installation, in the store."""

from __future__ import annotations

from typing import Protocol

from gpuherd.domain.access.audit import AuditRecord


class Flags(Protocol):
    """Single facts about the whole installation."""

    async def get(self, key: str) -> str | None: ...

    async def first(self, *keys: str) -> str | None:
        """Return the value of the first of these keys that has one, all from one look."""
        ...

    async def swap(
        self, key: str, old: str | None, new: str | None, audit_record: AuditRecord | None = None
    ) -> bool:
        """Put `new` where `old` is (None: nothing), all at once; False if something else is there."""
        ...

    async def put(self, key: str, value: str | None, audit_record: AuditRecord | None = None) -> None: ...
