"""The keys that seal what the database keeps and must not be able to read."""

from __future__ import annotations

from gpuherd.bootstrap.data_dir import secrets_key, stored_secrets_key
from gpuherd.domain.access.secret import Secret
from gpuherd.settings import Settings


def secrets_keys(settings: Settings, *, may_make: bool) -> tuple[Secret, ...]:
    """Return the keys, the one that seals new values first; none where there is none and none may be made.

    Replicas must all have the same, so a key that one of them made for itself would be worse than none. The
    file opens what it has sealed also when a key is configured later.
    """
    configured = [it for it in (settings.secrets_key, settings.secrets_key_previous) if it is not None]
    if not configured and may_make:
        return (secrets_key(settings.data_dir),)
    stored = stored_secrets_key(settings.data_dir)
    return (*configured, *([stored] if stored is not None else []))
