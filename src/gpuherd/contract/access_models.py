"""API keys, secrets and the audit log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpuherd.contract.wire_models import Moment, ReplyModel, Usd, one_of

Scope = Annotated[str, one_of("read", "write", "admin")]
KeyStatus = Annotated[str, one_of("active", "expired", "revoked")]


class Limits(ReplyModel):
    """How much a key may do; None is no limit."""

    requests_per_minute: int | None
    max_gpus: int | None
    max_hourly_usd: Usd | None
    max_lease_seconds: int | None = Field(
        description="every instance of the key has a lease, of at most so long"
    )


class ApiKey(ReplyModel, needs=("id",)):
    """A key, without what would let anybody in."""

    id: str
    label: str
    scopes: tuple[Scope, ...]
    status: KeyStatus
    limits: Limits
    created_at: Moment
    expires_at: Moment | None
    last_used_at: Moment | None
    revoked_at: Moment | None


class ApiKeyWithSecret(ApiKey):
    """A key that was just made."""

    key: str | None = Field(
        repr=False, description="the key itself, in this reply only; null in the reply to a repeated request"
    )
    webhook_secret: str | None = Field(repr=False, description="signs the webhooks of its instances")


class OwnKey(ReplyModel, needs=("id", "scopes")):
    """What a key may know of itself."""

    id: str
    scopes: tuple[Scope, ...]
    limits: Limits
    strict_budget: bool = Field(
        description="a strict budget covers all that it rents, so nothing can cost more than was set aside"
    )


class ApiKeys(ReplyModel):
    """All keys, oldest first, revoked ones too."""

    keys: tuple[ApiKey, ...]
    total: int


class SecretName(ReplyModel, needs=("name",)):
    """A secret, without its value: that never comes back."""

    name: str
    shared: bool = Field(description="an admin has set it for every key")
    created_at: Moment
    changed_at: Moment


class Secrets(ReplyModel):
    """The secrets that the caller's key may use, by name. Its own hides a shared one of its name."""

    secrets: tuple[SecretName, ...]
    total: int


class SecretRemoved(ReplyModel):
    """A secret that is no more."""

    name: str
    removed: bool


class SecretsRotated(ReplyModel):
    """What the newest key has sealed again, and what still needs an earlier one."""

    resealed: int
    unreadable: tuple[str, ...] = Field(description="names of secrets that no key of this server opens")
    instances_left: int = Field(description="have variables that an earlier key has sealed")


class AuditEntry(ReplyModel):
    """One entry of the audit log, with everything that its hash was made of."""

    n: int
    at: Moment
    actor: str = Field(description="the id of a key, or one of gpuherd's own names")
    action: str
    target: str
    before: str
    after: str
    request_id: str
    hash: str = Field(description="SHA-256 over the hash before it and everything that this entry says")


class AuditAnchor(ReplyModel):
    """The last entry of the audit log that was pruned; the hash of the next one was made over this one."""

    n: int
    hash: str


class AuditPage(ReplyModel):
    """One page of the audit log."""

    entries: tuple[AuditEntry, ...]
    total: int = Field(description="on all pages")
    next_cursor: str | None = Field(description="of the next page; null on the last")
    anchor: AuditAnchor | None = Field(description="where the log begins; null as long as nothing was pruned")
