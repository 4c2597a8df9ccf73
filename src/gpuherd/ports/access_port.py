"""What is to be remembered of API keys, sessions, the audit log, idempotency keys, and secrets."""

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
    """The caller's own word for one request (`Idempotency-Key`), and a fingerprint of what was asked."""

    # The id of the caller's key: two callers may use the same word.
    scope: str
    key: str
    fingerprint: str
    # What the fingerprint was with earlier keys, where it is made with one.
    earlier: tuple[str, ...] = ()

    def is_for(self, fingerprint: str) -> bool:
        """Return True if this is the request that was remembered so."""
        return fingerprint == self.fingerprint or fingerprint in self.earlier


class Sealer(Protocol):
    """Encrypts what must be kept, with a key that is not in the database."""

    def check(self) -> None:
        """Raise `SecretsKeyMissing` if nothing can be sealed."""
        ...

    def seal(self, value: Secret, about: str) -> str:
        """Return the value encrypted and authenticated; only with the same `about` can it be opened."""
        ...

    def unseal(self, sealed: str, about: str) -> Secret:
        """Return the value; `SecretUnreadable` if the key is another one, or the text was changed."""
        ...

    def is_current(self, sealed: str) -> bool:
        """Return True if the key that seals now has sealed it."""
        ...

    def digests(self, text: str) -> tuple[str, ...]:
        """Return a keyed digest by each key, the newest first: only who has the key can try guesses."""
        ...


class NamedSecrets(Protocol):
    """Secrets by owner and name, sealed."""

    async def put(self, secret: NamedSecret, audit_record: AuditRecord) -> NamedSecret:
        """Remember a secret in place of the one of its name, and return it with when the first was made."""
        ...

    async def list_of(self, owner: str) -> tuple[NamedSecret, ...]:
        """Return all of an owner, by name."""
        ...

    async def list_all(self) -> tuple[NamedSecret, ...]:
        """Return all of all owners."""
        ...

    async def reseal(self, secret: NamedSecret, sealed: str) -> bool:
        """Keep the same value sealed anew, unless it has changed meanwhile; tell whether it was done."""
        ...

    async def find(self, owner: str, name: str) -> NamedSecret | None:
        """Return one, if there is one."""
        ...

    async def remove(self, owner: str, name: str, audit_record: AuditRecord) -> bool:
        """Forget one, and tell whether there was one; only then it is recorded."""
        ...


class ApiKeys(Protocol):
    """The keys, without what would let anybody in."""

    async def add(self, key: ApiKey, audit_record: AuditRecord) -> None:
        """Remember a new key, and who made it; `Conflict` if its id is taken."""
        ...

    async def list_all(self) -> tuple[ApiKey, ...]:
        """Return all, oldest first, revoked ones too."""
        ...

    async def get(self, key_id: str) -> ApiKey:
        """Return one; `NotFound` (KEY_NOT_FOUND) if there is none."""
        ...

    async def revoke(self, key_id: str, audit_record: AuditRecord) -> ApiKey:
        """Make a key worthless from now on, and return it. Quiet if it is already."""
        ...

    async def set_webhook_secret(
        self, before: ApiKey, secret: KeyWebhookSecret, audit_record: AuditRecord
    ) -> None:
        """Let this secret sign for the key from now on; `StaleWrite` if it has another than `before` says."""
        ...

    async def record_use(self, moments: Mapping[str, datetime]) -> None:
        """Note when keys were last used; an earlier moment than the one known changes nothing."""
        ...


@dataclass(frozen=True)
class AuditPage:
    """One page of the log, and the number after which the next one goes on."""

    entries: tuple[AuditEntry, ...]
    total: int
    next_cursor: int | None
    # None as long as nothing was pruned.
    anchor: AuditAnchor | None = None


class AuditLog(Protocol):
    """The log. Most entries are written together with what they tell of; nothing ever changes one.

    The oldest are pruned in their time, and the anchor keeps the chain verifiable.
    """

    async def append(self, audit_record: AuditRecord) -> AuditEntry:
        """Write an entry by itself, just before something is done that no transaction of ours can hold."""
        ...

    async def page(self, limit: int, cursor: int | None = None, *, oldest_first: bool = False) -> AuditPage:
        """Return entries, newest first unless told otherwise."""
        ...


@dataclass(frozen=True)
class StoredReply:
    """What was answered to a request, to be answered again."""

    status: int
    headers: Mapping[str, str]
    body: str


class IdempotencyStore(Protocol):
    """Requests that carried an `Idempotency-Key`, other than those that instances keep with themselves."""

    async def begin(self, claim: IdempotencyClaim) -> StoredReply | None:
        """Take the claim and return None, or return what was answered to the same request before.

        `IdempotencyKeyReused` if it was another request, `Conflict` (IDEMPOTENCY_KEY_IN_USE) if that one is
        still being answered. A claim that was taken long ago and never answered may be taken again.
        """
        ...

    async def finish(self, claim: IdempotencyClaim, reply: StoredReply) -> None:
        """Keep the reply to the request that has the claim."""
        ...

    async def release(self, claim: IdempotencyClaim) -> None:
        """Give the claim up: nothing was done."""
        ...


class RevokedSessions(Protocol):
    """Sessions of the dashboard that somebody signed out of before their time was over."""

    async def add(self, session_id: str, expires_at: datetime, audit_record: AuditRecord) -> None:
        """Let a session be over in every replica, and write down who ended it. Quiet if it already is."""
        ...

    async def has(self, session_id: str) -> bool:
        """Return True if it is over; `StoreUnavailable` where nobody can tell."""
        ...


@dataclass(frozen=True)
class AuditPruning:
    """How many entries were pruned, and where the chain is broken, if it is."""

    count: int
    broken_at: int | None = None


class Retention(Protocol):
    """What becomes too old to be kept."""

    async def prune_claims(self, before: datetime) -> int:
        """Forget the claims that were made before then; return how many."""
        ...

    async def prune_instances(self, before: datetime) -> int:
        """Forget the instances that were deleted before then, with all that happened to them."""
        ...

    async def prune_failed_instances(self, before: datetime) -> int:
        """Forget the instances that failed before then, if nothing of them can cost money any more.

        Kept is one whose machine, or another with its tag, is on record, or whose create is unresolved.
        """
        ...

    async def prune_account_events(self, before: datetime) -> int:
        """Forget what happened to the account before then, but for the latest of it; return how many."""
        ...

    async def prune_sessions(self, before: datetime) -> int:
        """Forget that sessions were signed out of which would have ended before then; return how many."""
        ...

    async def prune_plans(self, before: datetime) -> int:
        """Forget the held plans that expired before then; return how many."""
        ...

    async def prune_costs(self, before: datetime) -> int:
        """Forget the spans that had ended before then, and bills and sums of days before; return how many."""
        ...

    async def prune_audit(self, before: datetime, now: datetime) -> AuditPruning:
        """Forget the entries that were written before then, but for the newest; the log records it.

        Nothing is pruned from a chain that is broken: what shows it must stay.
        """
        ...
