"""What the use cases store about API keys, sessions, the audit log, idempotency keys, and secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpuherd.domain.api_key import ApiKey
from gpuherd.domain.audit import AuditAnchor, AuditEntry, AuditRecord
from gpuherd.domain.secret import NamedSecret, Secret
from gpuherd.domain.webhooks.webhook_signing import KeyWebhookSecret


@dataclass(frozen=True)
class IdempotencyClaim:
    """The caller's own key for one request (`Idempotency-Key`), and a fingerprint of the request."""

    # The id of the caller's API key: two callers may use the same word.
    scope: str
    key: str
    fingerprint: str
    # Fingerprints with earlier sealing keys, if the fingerprint is keyed.
    earlier: tuple[str, ...] = ()

    def is_for(self, fingerprint: str) -> bool:
        """Return True if the stored fingerprint is of this request."""
        return fingerprint == self.fingerprint or fingerprint in self.earlier


class Sealer(Protocol):
    """Encrypts stored values with a key that is not in the database."""

    def check(self) -> None:
        """Raise `SecretsKeyMissing` if values cannot be sealed."""
        ...

    def seal(self, value: Secret, about: str) -> str:
        """Return the value encrypted and authenticated. Opening needs the same `about`."""
        ...

    def unseal(self, sealed: str, about: str) -> Secret:
        """Return the value; `SecretUnreadable` if the key is another one, or the text was changed."""
        ...

    def is_current(self, sealed: str) -> bool:
        """Return True if the present key sealed it."""
        ...

    def digests(self, text: str) -> tuple[str, ...]:
        """Return a keyed digest for each key, the newest first.

        Without the keys, the text cannot be guessed.
        """
        ...


class NamedSecrets(Protocol):
    """Secrets by owner and name, sealed."""

    async def put(self, secret: NamedSecret, audit_record: AuditRecord) -> NamedSecret:
        """Store a secret, replacing the one with its name. Return it with its first creation time."""
        ...

    async def list_of(self, owner: str) -> tuple[NamedSecret, ...]:
        """Return all secrets of an owner, by name."""
        ...

    async def list_all(self) -> tuple[NamedSecret, ...]:
        """Return the secrets of all owners."""
        ...

    async def reseal(self, secret: NamedSecret, sealed: str) -> bool:
        """Store the same value sealed again, unless it has changed. Return True if it was stored."""
        ...

    async def find(self, owner: str, name: str) -> NamedSecret | None:
        """Return one secret; None if there is none."""
        ...

    async def remove(self, owner: str, name: str, audit_record: AuditRecord) -> bool:
        """Delete one secret. Return True and write the audit record if there was one."""
        ...


class ApiKeys(Protocol):
    """The API keys. The store never holds the keys themselves."""

    async def add(self, key: ApiKey, audit_record: AuditRecord) -> None:
        """Store a new key, and who made it; `Conflict` if its id is taken."""
        ...

    async def list_all(self) -> tuple[ApiKey, ...]:
        """Return all keys, also revoked ones, oldest first."""
        ...

    async def get(self, key_id: str) -> ApiKey:
        """Return one key; `NotFound` (KEY_NOT_FOUND) if there is none."""
        ...

    async def revoke(self, key_id: str, audit_record: AuditRecord) -> ApiKey:
        """Revoke a key and return it. A second revocation changes nothing."""
        ...

    async def set_webhook_secret(
        self, before: ApiKey, secret: KeyWebhookSecret, audit_record: AuditRecord
    ) -> None:
        """Set the secret that signs for the key; `StaleWrite` if it is no longer the one in `before`."""
        ...

    async def record_use(self, moments: Mapping[str, datetime]) -> None:
        """Record when keys were last used. An earlier moment than the stored one changes nothing."""
        ...


@dataclass(frozen=True)
class AuditPage:
    """One page of the log, and the number after which the next page begins."""

    entries: tuple[AuditEntry, ...]
    total: int
    next_cursor: int | None
    # None until the first pruning.
    anchor: AuditAnchor | None = None


class AuditLog(Protocol):
    """The audit log. Most entries are written in the transaction of their action; none is ever changed.

    The oldest are pruned in time, and the anchor keeps the chain verifiable.
    """

    async def append(self, audit_record: AuditRecord) -> AuditEntry:
        """Write an entry alone, directly before an action that has no transaction."""
        ...

    async def page(self, limit: int, cursor: int | None = None, *, oldest_first: bool = False) -> AuditPage:
        """Return entries, newest first by default."""
        ...


@dataclass(frozen=True)
class StoredReply:
    """The reply to a request, for a repeat of the request."""

    status: int
    headers: Mapping[str, str]
    body: str


class IdempotencyStore(Protocol):
    """Requests with an `Idempotency-Key`, except those that instances store themselves."""

    async def begin(self, claim: IdempotencyClaim) -> StoredReply | None:
        """Take the claim and return None, or return the earlier reply to the same request.

        `IdempotencyKeyReused` if it was another request. `Conflict` (IDEMPOTENCY_KEY_IN_USE) if the request
        is still running. An old claim without a reply may be taken again.
        """
        ...

    async def finish(self, claim: IdempotencyClaim, reply: StoredReply) -> None:
        """Store the reply to the request that has the claim."""
        ...

    async def release(self, claim: IdempotencyClaim) -> None:
        """Release the claim: nothing was done."""
        ...


class RevokedSessions(Protocol):
    """Dashboard sessions that were signed out before their end."""

    async def add(self, session_id: str, expires_at: datetime, audit_record: AuditRecord) -> None:
        """End a session in every replica, and record who ended it. A second call changes nothing."""
        ...

    async def has(self, session_id: str) -> bool:
        """Return True if the session has ended; `StoreUnavailable` if that is unknown."""
        ...


@dataclass(frozen=True)
class AuditPruning:
    """How many entries were pruned, and where the chain is broken, if it is."""

    count: int
    broken_at: int | None = None


class Retention(Protocol):
    """Deletes old records."""

    async def prune_claims(self, before: datetime) -> int:
        """Delete the claims made before then; return how many."""
        ...

    async def prune_instances(self, before: datetime) -> int:
        """Delete the instances that were deleted before then, with all their records."""
        ...

    async def prune_failed_instances(self, before: datetime) -> int:
        """Delete the instances that failed before then and can cost nothing any more.

        An instance is kept if its machine, or a machine with its tag, is on record, or if a create is
        unresolved.
        """
        ...

    async def prune_account_events(self, before: datetime) -> int:
        """Delete the account events before then, except the latest; return how many."""
        ...

    async def prune_sessions(self, before: datetime) -> int:
        """Delete signed-out sessions that would have ended before then; return how many."""
        ...

    async def prune_plans(self, before: datetime) -> int:
        """Delete the held plans that expired before then; return how many."""
        ...

    async def prune_costs(self, before: datetime) -> int:
        """Delete the spans that ended before then, and older bills and sums; return how many."""
        ...

    async def prune_audit(self, before: datetime, now: datetime) -> AuditPruning:
        """Delete the audit entries written before then, except the newest. The log records this.

        A broken chain is not pruned: the evidence must stay.
        """
        ...
