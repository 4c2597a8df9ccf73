"""The caller: on whose behalf something is done, what of ours it may see, and how much it may use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuherd.domain.access.api_key import ADMIN_ID, NO_LIMITS, Limits, Scope
from gpuherd.domain.access.audit import AuditRecord


@dataclass(frozen=True)
class Caller:
    """The holder of an API key, or gpuherd itself."""

    key_id: str
    scope: Scope
    limits: Limits = NO_LIMITS
    # Of the request that is being answered; empty where there is none.
    request_id: str = ""
    # The caller's own id of what it is doing, for the log of whoever carries it out; empty as above.
    correlation_id: str = ""

    @property
    def sees_all(self) -> bool:
        return self.scope is Scope.ADMIN

    @property
    def owner(self) -> str | None:
        """Whose things this caller is confined to; None for those of all."""
        return None if self.sees_all else self.key_id

    def may_see(self, owner: str) -> bool:
        """Tell whether this caller may know of something that belongs to `owner`."""
        return self.sees_all or owner == self.key_id

    def audit_record(
        self, action: str, target: str, at: datetime, before: str = "", after: str = ""
    ) -> AuditRecord:
        """Return what this caller does, for the audit log."""
        return AuditRecord(at, self.key_id, action, target, before, after, self.request_id)


ADMIN = Caller(ADMIN_ID, Scope.ADMIN)
# What gpuherd does by itself.
SYSTEM_CALLER = Caller("gpuherd", Scope.ADMIN)
