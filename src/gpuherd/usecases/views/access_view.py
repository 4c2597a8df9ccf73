"""Keys, secrets and the audit log as the API shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from gpuherd.contract import access_models
from gpuherd.domain.api_key import ApiKey, Caller, Limits
from gpuherd.domain.audit import AuditEntry
from gpuherd.domain.secret import NamedSecret, Secret
from gpuherd.ports.access_port import AuditPage
from gpuherd.usecases.access.manage_secrets import Rotated


def describe_key(it: ApiKey, now: datetime) -> access_models.ApiKey:
    """Return all that may be shown of a key."""
    return access_models.ApiKey(
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


def describe_own_key(caller: Caller, *, has_strict_budget: bool) -> access_models.OwnKey:
    """Return what the holder of a key may know of it."""
    return access_models.OwnKey(
        id=caller.key_id,
        scopes=(caller.scope.value,),
        limits=_describe_limits(caller.limits),
        strict_budget=has_strict_budget,
    )


def _describe_limits(it: Limits) -> access_models.Limits:
    return access_models.Limits(
        requests_per_minute=it.requests_per_minute,
        max_gpus=it.max_gpus,
        max_hourly_usd=it.max_hourly_usd,
        max_lease_seconds=it.max_lease_s,
    )


def describe_new_key(
    it: ApiKey, secret: Secret, webhook_secret: Secret | None, now: datetime
) -> access_models.ApiKeyWithSecret:
    """Return a key with what lets somebody in, and what signs its webhooks, once."""
    return access_models.ApiKeyWithSecret.extending(
        describe_key(it, now),
        key=secret.reveal(),
        webhook_secret=None if webhook_secret is None else webhook_secret.reveal(),
    )


def describe_keys(keys: Iterable[ApiKey], now: datetime) -> access_models.ApiKeys:
    """Return all keys."""
    found = tuple(describe_key(it, now) for it in keys)
    return access_models.ApiKeys(keys=found, total=len(found))


def describe_secret(it: NamedSecret) -> access_models.SecretName:
    """Return all that may be shown of a secret."""
    return access_models.SecretName(
        name=it.name, shared=it.shared, created_at=it.created_at, changed_at=it.changed_at
    )


def describe_secrets(secrets: Iterable[NamedSecret]) -> access_models.Secrets:
    """Return the secrets that one key may use."""
    found = tuple(map(describe_secret, secrets))
    return access_models.Secrets(secrets=found, total=len(found))


def describe_rotated(it: Rotated) -> access_models.SecretsRotated:
    """Return what a rotation has done."""
    return access_models.SecretsRotated(
        resealed=it.resealed, unreadable=it.unreadable, instances_left=it.instances_left
    )


def key_audit_text(it: ApiKey) -> str:
    """Return what the audit log says of a new key."""
    said = describe_key(it, it.created_at).model_dump(mode="json")
    return json.dumps({name: said[name] for name in ("label", "scopes", "limits", "expiresAt")})


def describe_entry(it: AuditEntry) -> access_models.AuditEntry:
    """Return one entry of the audit log, with everything that its hash was made of."""
    audit_record = it.audit_record
    return access_models.AuditEntry(
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


def describe_audit(page: AuditPage) -> access_models.AuditPage:
    """Return one page of the audit log."""
    anchor = page.anchor
    return access_models.AuditPage(
        entries=tuple(map(describe_entry, page.entries)),
        total=page.total,
        next_cursor=None if page.next_cursor is None else str(page.next_cursor),
        anchor=None if anchor is None else access_models.AuditAnchor(n=anchor.n, hash=anchor.hash),
    )
