"""An endpoint: a receiver of the events of every instance, with a secret of its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuherd.domain.access.secret import Secret
from gpuherd.domain.fast_replace import replace

ID_PREFIX = "ep_"
# So long after a rotation both secrets sign, so that receivers can change theirs at leisure.
ROTATION_OVERLAP = timedelta(hours=24)


@dataclass(frozen=True)
class WebhookEndpoint:
    """Where events go. Its secret is not in here: it is derived from `root`, the id and the generation."""

    id: str
    url: str
    created_at: datetime
    # Fingerprint of the root key from which its secret is derived.
    root: str
    # The types that it wants; none means all.
    events: tuple[str, ...] = ()
    label: str = ""
    generation: int = 1
    rotated_at: datetime | None = None
    previous_root: str = ""
    disabled_at: datetime | None = None
    disabled_reason: str = ""

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None

    def wants(self, event_type: str) -> bool:
        """Tell whether events of this type go there."""
        return self.is_enabled and (not self.events or event_type in self.events)

    def in_overlap(self, now: datetime) -> bool:
        """Tell whether the secret before the last rotation still signs."""
        return self.rotated_at is not None and now < self.rotated_at + ROTATION_OVERLAP

    def rotated(self, root: str, now: datetime) -> WebhookEndpoint:
        """Return it with a new secret."""
        return replace(
            self, generation=self.generation + 1, rotated_at=now, previous_root=self.root, root=root
        )

    def disabled(self, reason: str, now: datetime) -> WebhookEndpoint:
        """Return it disabled; the first reason is kept."""
        return replace(self, disabled_at=now, disabled_reason=reason) if self.is_enabled else self

    def enabled(self) -> WebhookEndpoint:
        """Return it switched on."""
        return replace(self, disabled_at=None, disabled_reason="")


@dataclass(frozen=True)
class EndpointWithSecret:
    """An endpoint with its secret, which is shown at this moment and never again."""

    endpoint: WebhookEndpoint
    secret: Secret
