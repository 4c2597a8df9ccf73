"""Keys and the audit log as the world sees them. No secret is in here."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from gpuherd.domain.access.api_key import ApiKey
from gpuherd.domain.access.audit import AuditEntry
from gpuherd.usecases.describe.instance import iso, usd


def describe_key(it: ApiKey, now: datetime) -> dict[str, Any]:
    """Return all that may be shown of a key."""
    status = "active" if it.is_valid(now) else "expired" if it.revoked_at is None else "revoked"
    return {
        "id": it.id,
        "label": it.label,
        "scopes": [scope.value for scope in it.scopes],
        "status": status,
        "limits": {
            "requestsPerMinute": it.limits.requests_per_minute,
            "maxGpus": it.limits.max_gpus,
            "maxHourlyUsd": usd(it.limits.max_hourly_usd),
        },
        "createdAt": iso(it.created_at),
        "expiresAt": iso(it.expires_at),
        "lastUsedAt": iso(it.last_used_at),
        "revokedAt": iso(it.revoked_at),
    }


def key_audit_text(it: ApiKey) -> str:
    """Return what the audit log says of a new key."""
    shown = describe_key(it, it.created_at)
    return json.dumps({name: shown[name] for name in ("label", "scopes", "limits", "expiresAt")})


def describe_entry(it: AuditEntry) -> dict[str, Any]:
    """Return one entry of the audit log, with everything that its hash was made of."""
    audit_record = it.audit_record
    return {
        "n": it.n,
        "at": iso(audit_record.at),
        "actor": audit_record.actor,
        "action": audit_record.action,
        "target": audit_record.target,
        "before": audit_record.before,
        "after": audit_record.after,
        "requestId": audit_record.request_id,
        "hash": it.hash,
    }
