"""The data directory: keys, secrets, and the lock of the process."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_endpoint import KeyRing
from gpuherd.domain.webhooks.webhook_signing import KEY_PREFIX, Signer
from gpuherd.settings import Settings

ADMIN_KEY_FILE = "admin.key"
WEBHOOK_KEY_FILE = "webhook.key"
SECRETS_KEY_FILE = "secrets.key"
LOCK_SUFFIX = ".lock"


class CannotStart(GpuherdError):
    """Something about this machine must be changed by a person first."""

    code = "CANNOT_START"


class ProcessLock:
    """Held as long as the process lives: two processes on one SQLite file would each think they are alone."""

    def __init__(self, database: Path):
        # By the file itself, whatever names lead to it: links to one file are one database.
        real = database.resolve()
        directory = real.parent
        _make_directory(directory)
        try:
            self._file = real.with_suffix(LOCK_SUFFIX).open("a")
        except OSError as error:
            raise _unwritable(directory, error) from error
        try:
            # guard: one process on one file
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise CannotStart(
                f"another gpuherd is using {real}. Stop it first, give this one another "
                "GPUHERD_DATA_DIR, or use PostgreSQL for several processes."
            ) from None

    def release(self) -> None:
        self._file.close()


def admin_key(directory: Path, configured: Secret | None) -> Secret:
    """Return the admin key: the configured one, else the stored one, else a new one that is stored."""
    return configured if configured is not None else _load_or_create_key(directory, ADMIN_KEY_FILE, "ghk_")


def webhook_key(directory: Path) -> Secret:
    """Return the key from which the secrets of webhook endpoints are derived; made at the first call."""
    return _load_or_create_key(directory, WEBHOOK_KEY_FILE, "ghw_")


def secrets_key(directory: Path) -> Secret:
    """Return the key that seals secrets; made at the first call."""
    return _load_or_create_key(directory, SECRETS_KEY_FILE, "ghs_")


def stored_admin_key(directory: Path) -> Secret | None:
    """Return the key that a server on this machine has made, if this user may read it."""
    return _load_key(directory / ADMIN_KEY_FILE)


def stored_webhook_key(directory: Path) -> Secret | None:
    """Return the key from which secrets of webhook endpoints may have been derived here."""
    return _load_key(directory / WEBHOOK_KEY_FILE)


def stored_secrets_key(directory: Path) -> Secret | None:
    """Return the key with which secrets may have been sealed here."""
    return _load_key(directory / SECRETS_KEY_FILE)


def _load_or_create_key(directory: Path, name: str, prefix: str) -> Secret:
    _make_directory(directory)
    path = directory / name
    if (known := _load_key(path)) is not None:
        return known
    # Written aside and linked when it is whole: of two processes that start together, one has its way.
    temporary = directory / f".{name}.{secrets.token_hex(4)}"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{prefix}{secrets.token_urlsafe(32)}\n")
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
        temporary.unlink()
    except OSError as error:
        raise _unwritable(directory, error) from error
    if (stored := _load_key(path)) is None:
        raise CannotStart(f"{path} belongs to somebody else and cannot be read")
    return stored


def _load_key(path: Path) -> Secret | None:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CannotStart(f"{path} can be read by others; run: chmod 600 {path}")
        key = path.read_text().strip()
    except (FileNotFoundError, PermissionError):
        return None
    if not key:
        # Everybody knows the empty key.
        raise CannotStart(f"{path} is empty, so a crash must have cut it short; remove it")
    return Secret(key)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CannotStart(f"the data directory {directory} cannot be made: {error.strerror}") from error


def _unwritable(directory: Path, error: OSError) -> CannotStart:
    return CannotStart(f"the data directory {directory} cannot be written: {error.strerror}")


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


# A passphrase may be short, and the database holds a fingerprint of what is derived from it.
STRETCHING_ROUNDS = 200_000


STRETCHING_SALT = b"gpuherd webhook root"


@dataclass(frozen=True)
class WebhookKeys:
    """What webhooks are signed with."""

    # Sign for receivers that are no endpoints, where no key's own secret does; none if none is configured.
    common: tuple[Secret, ...]
    # Derives the secrets of endpoints and of API keys.
    key_ring: KeyRing

    @property
    def signer(self) -> Signer | None:
        """Signs with the common secrets; None where there are none."""
        return Signer(self.common) if self.common else None


def webhook_keys(settings: Settings) -> WebhookKeys:
    """Return the configured keys, or one that is kept in the data directory."""
    secrets = [it for it in (settings.webhook_secret, settings.webhook_secret_previous) if it is not None]
    return WebhookKeys(tuple(secrets), KeyRing(_root_keys(settings, secrets)))


def _root_keys(settings: Settings, secrets: list[Secret]) -> list[Secret]:
    """Return the root keys, the one for new secrets first.

    A file that was used before WEBHOOK_SECRET was set keeps the secrets valid that were derived from it.
    """
    if not secrets:
        return [webhook_key(settings.data_dir)]
    stored = stored_webhook_key(settings.data_dir)
    return [*map(_stretched_key, secrets), *([stored] if stored else [])]


def _stretched_key(secret: Secret) -> Secret:
    text = secret.reveal()
    if text.startswith(KEY_PREFIX):
        return secret
    raw = text.encode("utf-8", "surrogateescape")
    return Secret(hashlib.pbkdf2_hmac("sha256", raw, STRETCHING_SALT, STRETCHING_ROUNDS).hex())
