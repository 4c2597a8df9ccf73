"""Who may come in, and who did what."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from gpuherd.contract.codec.model import Model, hidden
from gpuherd.contract.codec.values import OneOf

Scope = Annotated[str, OneOf(("read", "write", "admin"))]
KeyStatus = Annotated[str, OneOf(("active", "expired", "revoked"))]


class Limits(Model):
    """How much a key may do; None is no limit."""

    requests_per_minute: int | None
    max_gpus: int | None
    max_hourly_usd: Decimal | None
    max_lease_seconds: int | None  # every instance of the key has a lease, of at most so long


class ApiKey(Model, needs=("id",)):
    """A key, without what would let anybody in."""

    id: str
    label: str
    scopes: tuple[Scope, ...]
    status: KeyStatus
    limits: Limits
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class ApiKeyWithSecret(ApiKey):
    """A key that was just made."""

    key: str | None = hidden()  # the key itself, in this reply only; None in the reply to a repeated request
    webhook_secret: str | None = hidden()  # signs the webhooks of its instances


class OwnKey(Model, needs=("id", "scopes")):
    """What a key may know of itself."""

    id: str
    scopes: tuple[Scope, ...]
    limits: Limits
    # Whether a strict budget covers whatever it rents: then nothing can cost more than was set aside.
    strict_budget: bool


class ApiKeys(Model):
    """All keys, oldest first, revoked ones too."""

    keys: tuple[ApiKey, ...]
    total: int


class SecretName(Model, needs=("name",)):
    """A secret, without its value: that never comes back."""

    name: str
    shared: bool  # an admin has set it for every key
    created_at: datetime
    changed_at: datetime


class Secrets(Model):
    """The secrets that the caller's key may use, by name. Its own hides a shared one of its name."""

    secrets: tuple[SecretName, ...]
    total: int


class SecretRemoved(Model):
    """A secret that is no more."""

    name: str
    removed: bool


class SecretsRotated(Model):
    """What the newest key has sealed again, and what still needs an earlier one."""

    resealed: int
    unreadable: tuple[str, ...]  # names of secrets that no key of this server opens
    instances_left: int  # have variables that an earlier key has sealed


class AuditEntry(Model):
    """One entry of the audit log, with everything that its hash was made of."""

    n: int
    at: datetime
    actor: str  # the id of a key, or one of gpuherd's own names
    action: str
    target: str
    before: str
    after: str
    request_id: str
    hash: str  # SHA-256 over the hash before it and everything that this entry says


class AuditAnchor(Model):
    """The last entry of the audit log that was pruned; the hash of the next one was made over this one."""

    n: int
    hash: str


class AuditPage(Model):
    """One page of the audit log."""

    entries: tuple[AuditEntry, ...]
    total: int  # on all pages
    next_cursor: str | None  # of the next page; None on the last
    anchor: AuditAnchor | None  # where the log begins; None as long as nothing was pruned
