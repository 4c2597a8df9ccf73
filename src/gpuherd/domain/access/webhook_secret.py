"""The webhook secret of an API key: what is remembered of it, which is not enough to sign."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.access.secret import Secret

# So long after a rotation both secrets sign, so that receivers can change theirs at leisure.
ROTATION_OVERLAP = timedelta(hours=24)


@dataclass(frozen=True)
class KeyWebhookSecret:
    """The secret is derived from a root key and this.

    The root may be WEBHOOK_SECRET, which tenants of an installation may know, so the nonce is a part of the
    secret: neither the root nor the database is enough.
    """

    nonce: str = field(repr=False)
    # Fingerprint of the root key from which it is derived.
    root: str
    generation: int = 1
    rotated_at: datetime | None = None
    # Of the secret before; empty where that was the common one.
    previous_nonce: str = field(default="", repr=False)
    previous_root: str = ""

    def in_overlap(self, now: datetime) -> bool:
        """Tell whether what signed before the last rotation still signs."""
        return self.rotated_at is not None and now < self.rotated_at + ROTATION_OVERLAP

    def follows_common(self, now: datetime) -> bool:
        """Tell whether the common secret still signs because this one has just taken its place."""
        return self.generation == 1 and self.in_overlap(now)

    def rotated(self, root: str, nonce: str, now: datetime) -> KeyWebhookSecret:
        """Return the one that takes its place."""
        return KeyWebhookSecret(nonce, root, self.generation + 1, now, self.nonce, self.root)


class SignedWith(StrEnum):
    """What signs for the URLs that the instances of a key bring along."""

    KEY = "key"
    COMMON = "common"
    NOTHING = "nothing"


@dataclass(frozen=True)
class ShownKeySecret:
    """What signs for a key. The secret is there for the key itself, and for whoever has just rotated it."""

    key_id: str
    signed_with: SignedWith
    record: KeyWebhookSecret | None = None
    secret: Secret | None = None
