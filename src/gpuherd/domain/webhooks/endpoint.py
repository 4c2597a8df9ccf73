"""An endpoint: a receiver of the events of every instance, with a secret of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuherd.domain.access.secret import Secret
from gpuherd.domain.access.webhook_secret import ROTATION_OVERLAP
from gpuherd.domain.notifications.kind import EndpointKind
from gpuherd.domain.notifications.target import shown_target

ID_PREFIX = "ep_"


@dataclass(frozen=True)
class WebhookEndpoint:
    """Where events go. Its secret is not in here: it is derived from a root key and from this."""

    id: str
    # For some kinds whoever knows it can write there.
    url: str = field(repr=False)
    created_at: datetime
    # Fingerprint of the root key from which its secret is derived.
    root: str
    # The types that it wants; none means all.
    events: tuple[str, ...] = ()
    label: str = ""
    generation: int = 1
    rotated_at: datetime | None = None
    previous_root: str = ""
    # The random part of its secret; empty of one from before there were any, until it is rotated.
    nonce: str = field(default="", repr=False)
    previous_nonce: str = field(default="", repr=False)
    disabled_at: datetime | None = None
    disabled_reason: str = ""
    kind: EndpointKind = EndpointKind.WEBHOOK

    @property
    def shown_url(self) -> str:
        """Where events go, without what is secret in it."""
        return shown_target(self.kind, self.url)

    @property
    def delivery_url(self) -> str:
        """What a delivery remembers of where it goes.

        Where the address is a secret it stays in here alone, so that a removed endpoint leaves no copy.
        """
        return self.url if self.kind.is_signed else self.shown_url

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None

    def wants(self, event_type: str) -> bool:
        """Tell whether events of this type go there."""
        return self.is_enabled and (not self.events or event_type in self.events)

    def in_overlap(self, now: datetime) -> bool:
        """Tell whether the secret before the last rotation still signs."""
        return self.rotated_at is not None and now < self.rotated_at + ROTATION_OVERLAP

    def rotated(self, root: str, nonce: str, now: datetime) -> WebhookEndpoint:
        """Return it with a new secret."""
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
        """Return it disabled; the first reason is kept."""
        return replace(self, disabled_at=now, disabled_reason=reason) if self.is_enabled else self

    def enabled(self) -> WebhookEndpoint:
        """Return it switched on."""
        return replace(self, disabled_at=None, disabled_reason="")


@dataclass(frozen=True)
class EndpointWithSecret:
    """An endpoint with its secret, which is shown at this moment and never again.

    Empty where people read, and nothing is signed.
    """

    endpoint: WebhookEndpoint
    secret: Secret
