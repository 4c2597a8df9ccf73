"""Keys and the audit log as the world sees them. A secret is in the reply to its making only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from gpuherd.contract import access as shown
from gpuherd.contract.codec.model import encode
from gpuherd.domain.access.api_key import ApiKey, Limits
from gpuherd.domain.access.audit import AuditEntry
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.access.named_secret import NamedSecret
from gpuherd.domain.access.secret import Secret
from gpuherd.ports.access import AuditPage
from gpuherd.usecases.secrets.rotate import Rotated


def describe_key(it: ApiKey, now: datetime) -> shown.ApiKey:
    """Return all that may be shown of a key."""
    return shown.ApiKey(
        id=it.id,
        label=it.label,
        scopes=tuple(scope.value for scope in it.scopes),
        status="active" if it.is_valid(now) else "expired" if it.revoked_at is None else "revoked",
        limits=_describe_limits(it.limits),
        created_at=it.created_at,
        expires_at=it.expires_at,
        last_used_at=it.last_used_at,
        revoked_at=it.revoked_at,
    )


def describe_own_key(caller: Caller, *, has_strict_budget: bool) -> shown.OwnKey:
    """Return what the holder of a key may know of it."""
    return shown.OwnKey(
        id=caller.key_id,
        scopes=(caller.scope.value,),
        limits=_describe_limits(caller.limits),
        strict_budget=has_strict_budget,
    )


def _describe_limits(it: Limits) -> shown.Limits:
    return shown.Limits(
        requests_per_minute=it.requests_per_minute,
        max_gpus=it.max_gpus,
        max_hourly_usd=it.max_hourly_usd,
        max_lease_seconds=it.max_lease_s,
    )


def describe_new_key(
    it: ApiKey, secret: Secret, webhook_secret: Secret | None, now: datetime
) -> shown.ApiKeyWithSecret:
    """Return a key with what lets somebody in, and what signs its webhooks, once."""
    return shown.ApiKeyWithSecret.extending(
        describe_key(it, now),
        key=secret.reveal(),
        webhook_secret=None if webhook_secret is None else webhook_secret.reveal(),
    )


def describe_keys(keys: Iterable[ApiKey], now: datetime) -> shown.ApiKeys:
    """Return all keys."""
    found = tuple(describe_key(it, now) for it in keys)
    return shown.ApiKeys(keys=found, total=len(found))


def describe_secret(it: NamedSecret) -> shown.SecretName:
    """Return all that may be shown of a secret."""
    return shown.SecretName(
        name=it.name, shared=it.shared, created_at=it.created_at, changed_at=it.changed_at
    )


def describe_secrets(secrets: Iterable[NamedSecret]) -> shown.Secrets:
    """Return the secrets that one key may use."""
    found = tuple(map(describe_secret, secrets))
    return shown.Secrets(secrets=found, total=len(found))


def describe_rotated(it: Rotated) -> shown.SecretsRotated:
    """Return what a rotation has done."""
    return shown.SecretsRotated(
        resealed=it.resealed, unreadable=it.unreadable, instances_left=it.instances_left
    )


def key_audit_text(it: ApiKey) -> str:
    """Return what the audit log says of a new key."""
    said = encode(describe_key(it, it.created_at))
    return json.dumps({name: said[name] for name in ("label", "scopes", "limits", "expiresAt")})


def describe_entry(it: AuditEntry) -> shown.AuditEntry:
    """Return one entry of the audit log, with everything that its hash was made of."""
    audit_record = it.audit_record
    return shown.AuditEntry(
        n=it.n,
        at=audit_record.at,
        actor=audit_record.actor,
        action=audit_record.action,
        target=audit_record.target,
        before=audit_record.before,
        after=audit_record.after,
        request_id=audit_record.request_id,
        hash=it.hash,
    )


def describe_audit(page: AuditPage) -> shown.AuditPage:
    """Return one page of the audit log."""
    anchor = page.anchor
    return shown.AuditPage(
        entries=tuple(map(describe_entry, page.entries)),
        total=page.total,
        next_cursor=None if page.next_cursor is None else str(page.next_cursor),
        anchor=None if anchor is None else shown.AuditAnchor(n=anchor.n, hash=anchor.hash),
    )
