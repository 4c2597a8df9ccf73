"""Webhook endpoints: kinds, targets, and mail servers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from urllib.parse import unquote, urlsplit, urlunsplit

from gpuherd.domain.egress_policy import (
    BlockedTarget,
    EgressPolicy,
    check_url,
    redact_query,
)
from gpuherd.domain.secret import HIDDEN, Secret
from gpuherd.domain.webhooks.webhook_signing import ROTATION_OVERLAP, KeyWebhookSecret

ID_PREFIX = "ep_"


class EndpointKind(StrEnum):
    """How an event is written for an endpoint."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    DISCORD = "discord"
    NTFY = "ntfy"
    EMAIL = "email"

    @property
    def is_signed(self) -> bool:
        """Return True if the receiver is a program that can verify a signature."""
        return self is EndpointKind.WEBHOOK

    @property
    def messages_per_s(self) -> float:
        """How many messages per second one address accepts in the long run; 0 if unknown."""
        return _MESSAGES_PER_S.get(self, 0.0)


@dataclass(frozen=True)
class WebhookEndpoint:
    """A receiver of events. Its secret is derived from a root key and these fields."""

    id: str
    # For some kinds, knowing the URL is enough to post there.
    url: str = field(repr=False)
    created_at: datetime
    # Fingerprint of the root key of its secret.
    root: str
    # The event types that it receives; empty means all.
    events: tuple[str, ...] = ()
    label: str = ""
    generation: int = 1
    rotated_at: datetime | None = None
    previous_root: str = ""
    # The random part of its secret. Empty in old records until the next rotation.
    nonce: str = field(default="", repr=False)
    previous_nonce: str = field(default="", repr=False)
    disabled_at: datetime | None = None
    disabled_reason: str = ""
    kind: EndpointKind = EndpointKind.WEBHOOK

    @property
    def shown_url(self) -> str:
        """The URL without its secret parts."""
        return shown_target(self.kind, self.url)

    @property
    def delivery_url(self) -> str:
        """The address that a delivery stores.

        A secret address is stored only in the endpoint, so a removed endpoint leaves no copy.
        """
        return self.url if self.kind.is_signed else self.shown_url

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None

    def wants(self, event_type: str) -> bool:
        """Return True if this endpoint receives events of this type."""
        return self.is_enabled and (not self.events or event_type in self.events)

    def in_overlap(self, now: datetime) -> bool:
        """Return True if the secret before the last rotation still signs."""
        return self.rotated_at is not None and now < self.rotated_at + ROTATION_OVERLAP

    def rotated(self, root: str, nonce: str, now: datetime) -> WebhookEndpoint:
        """Return the endpoint with a new secret."""
        return replace(
            self,
            generation=self.generation + 1,
            rotated_at=now,
            root=root,
            nonce=nonce,
            previous_root=self.root,
            previous_nonce=self.nonce,
        )

    def disabled(self, reason: str, now: datetime) -> WebhookEndpoint:
        """Return the endpoint disabled; the first reason is kept."""
        return replace(self, disabled_at=now, disabled_reason=reason) if self.is_enabled else self

    def enabled(self) -> WebhookEndpoint:
        """Return the endpoint enabled."""
        return replace(self, disabled_at=None, disabled_reason="")


@dataclass(frozen=True)
class EndpointWithSecret:
    """An endpoint with its secret, which is shown only at this moment.

    The secret is empty for kinds that are not signed.
    """

    endpoint: WebhookEndpoint
    secret: Secret


# Slack: one per second. Discord: five in two seconds. ntfy: bursts, then fewer.
_MESSAGES_PER_S = {EndpointKind.SLACK: 1.0, EndpointKind.DISCORD: 2.0, EndpointKind.NTFY: 1.0}


# What a person needs to know without asking: usable, lost, ended, costs. The rest is progress.
READ_BY_PEOPLE = (
    "account.low_balance",
    "budget.exhausted",
    "budget.reset",
    "budget.warning",
    "costs.drift",
    "costs.price_changed",
    "instance.data_expiring",
    "instance.exited",
    "instance.failed",
    "instance.idle_ended",
    "instance.idle_warning",
    "instance.lease_ended",
    "instance.lease_ending",
    "instance.orphan_detected",
    "instance.ready",
    "instance.reclaim_notice",
    "instance.reclaim_withdrawn",
    "instance.replaced",
    "instance.replacement_gave_up",
    "instance.replacement_refused",
    "instance.silence_ended",
    "instance.timeout",
)


def default_events(kind: EndpointKind) -> tuple[str, ...]:
    """Return the default event types of an endpoint; empty means all."""
    return () if kind is EndpointKind.WEBHOOK else READ_BY_PEOPLE


MAILTO = "mailto:"
ADDRESS_MAX_CHARS = 254


# No quotes, comments, routes (`%`, `!`) or literals that a relay could read as another host.
_LOCAL_PART = re.compile(r"[A-Za-z0-9_+=~'&-]+(?:\.[A-Za-z0-9_+=~'&-]+)*")


_HOST_NAME = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z][A-Za-z0-9-]{0,61}[A-Za-z0-9]"
)


_NTFY_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_target(kind: EndpointKind, target: str, policy: EgressPolicy) -> str:
    """Return the normalized address, or raise `BlockedTarget`."""
    if kind is EndpointKind.EMAIL:
        return f"{MAILTO}{mail_address(target)}"
    check_url(target, policy)
    if kind is EndpointKind.NTFY:
        split_ntfy_topic(target)
    return target


def shown_target(kind: EndpointKind, target: str) -> str:
    """Return the address without its secret parts."""
    if kind is EndpointKind.WEBHOOK:
        return redact_query(target)
    if kind is EndpointKind.EMAIL:
        return target
    try:
        parts = urlsplit(target)
    except ValueError:
        # A damaged row must not hide the other endpoints.
        return HIDDEN
    return f"{parts.scheme}://{parts.netloc}/{HIDDEN}"


def mail_address(target: str) -> str:
    """Return the address of a mail target, with or without `mailto:`; `BlockedTarget` if it is invalid."""
    address = target.removeprefix(MAILTO)
    local, _, domain = address.rpartition("@")
    if len(address) > ADDRESS_MAX_CHARS or len(local) > 64:
        raise BlockedTarget(f"an e-mail address has at most {ADDRESS_MAX_CHARS} characters")
    if not _LOCAL_PART.fullmatch(local) or not _HOST_NAME.fullmatch(domain):
        raise BlockedTarget("it is no plain e-mail address such as mailto:ops@example.com")
    return address


def split_ntfy_topic(url: str) -> tuple[str, str]:
    """Return the server, to which JSON is published, and the topic; `BlockedTarget` if there is no topic."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BlockedTarget("the URL cannot be read") from None
    path, _, topic = parts.path.rpartition("/")
    if not _NTFY_TOPIC.fullmatch(topic):
        raise BlockedTarget("it names no ntfy topic, as in https://ntfy.sh/my-topic")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/", parts.query, "")), topic


class MailSecurity(StrEnum):
    """How the connection is protected."""

    # TLS from the first byte.
    TLS = "smtps"
    # STARTTLS is required.
    STARTTLS = "smtp"
    # No encryption: for a relay on the same host or network.
    PLAIN = "smtp+plain"


_PORTS = {MailSecurity.TLS: 465, MailSecurity.STARTTLS: 587, MailSecurity.PLAIN: 25}
_FORM = "must be smtps://user:password@host, smtp://user:password@host (STARTTLS) or smtp+plain://host"


@dataclass(frozen=True)
class SmtpServer:
    """The mail server, and its login."""

    host: str
    port: int
    security: MailSecurity
    user: str = ""
    password: Secret | None = None

    @classmethod
    def parse(cls, url: Secret) -> SmtpServer:
        """Parse the setting. `ValueError` gives the reason and quotes no part of it."""
        try:
            parts = urlsplit(url.reveal())
            security, host, port = MailSecurity(parts.scheme), parts.hostname, parts.port
        except ValueError:
            raise ValueError(_FORM) from None
        if not host or parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError(_FORM)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if bool(user) != bool(password):
            raise ValueError("needs a user and a password, or neither")
        if not (user + password).isascii():
            raise ValueError("has a user or password that is not ASCII, which SMTP cannot carry")
        if user and security is MailSecurity.PLAIN:
            raise ValueError("would send the password in the clear; use smtp:// (STARTTLS) or smtps://")
        return cls(host, port or _PORTS[security], security, user, Secret(password) if password else None)


_FINGERPRINT_CHARS = 12


class KeyRing:
    """The root keys of this installation. The first makes new secrets; all of them sign.

    Each secret stores the fingerprint of its root, so a new root does not change it silently. The root may be
    WEBHOOK_SECRET, which tenants may know, so a nonce from the database is a part of each secret.
    """

    def __init__(self, roots: Sequence[Secret]):
        if not roots:
            raise ValueError("secrets are derived from a root key")
        keys = [_digest(root.reveal().encode("utf-8", "surrogateescape"), b"root") for root in roots]
        self._keys = {_fingerprint(key): key for key in reversed(keys)}
        self.newest = _fingerprint(keys[0])

    def knows(self, endpoint: WebhookEndpoint) -> bool:
        """Return True if the endpoint's secret can still be derived."""
        return endpoint.root in self._keys

    def secret(self, endpoint: WebhookEndpoint) -> Secret:
        """Return the endpoint's present secret; `KeyError` if its root is lost."""
        return self._derive(endpoint.root, "endpoint", endpoint.id, endpoint.generation, endpoint.nonce)

    def signing_secrets(self, endpoint: WebhookEndpoint, now: datetime) -> tuple[Secret, ...]:
        """Return the secrets that sign now, the present one first; none if the root is lost."""
        generations = [(endpoint.root, endpoint.generation, endpoint.nonce)]
        if endpoint.in_overlap(now):
            generations.append((endpoint.previous_root, endpoint.generation - 1, endpoint.previous_nonce))
        return tuple(
            self._derive(root, "endpoint", endpoint.id, n, nonce)
            for root, n, nonce in generations
            if root in self._keys
        )

    def new_key_secret(self, nonce: str, rotated_at: datetime | None = None) -> KeyWebhookSecret:
        """Return the record of an API key's first secret."""
        return KeyWebhookSecret(nonce, self.newest, rotated_at=rotated_at)

    def secret_of_key(self, key_id: str, record: KeyWebhookSecret) -> Secret | None:
        """Return the present secret of an API key; None if its root is lost."""
        if record.root not in self._keys:
            return None
        return self._derive(record.root, "key", key_id, record.generation, record.nonce)

    def key_signing_secrets(self, key_id: str, record: KeyWebhookSecret, now: datetime) -> tuple[Secret, ...]:
        """Return the secrets that sign for a key now, the present one first; none if the root is lost."""
        generations = [(record.root, record.generation, record.nonce)]
        if record.in_overlap(now):
            generations.append((record.previous_root, record.generation - 1, record.previous_nonce))
        return tuple(
            self._derive(root, "key", key_id, n, nonce)
            for root, n, nonce in generations
            if root in self._keys
        )

    def _derive(self, root: str, kind: str, owner_id: str, generation: int, nonce: str) -> Secret:
        # Old endpoints have no nonce until the next rotation.
        purpose = ":".join((kind, owner_id, str(generation), *([nonce] if nonce else [])))
        key = _digest(self._keys[root], purpose.encode())
        return Secret(f"whsec_{base64.b64encode(key).decode('ascii')}")


def _digest(key: bytes, purpose: bytes) -> bytes:
    # The purpose separates the uses: a key derived for one use is worthless for another.
    return hmac.new(key, b"gpuherd webhooks " + purpose, hashlib.sha256).digest()


def _fingerprint(key: bytes) -> str:
    return _digest(key, b"fingerprint").hex()[:_FINGERPRINT_CHARS]
