"""Image prewarm: a cloud pulls an image into a region before a machine needs it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

PRODUCTS_MAX = 20


class PrewarmState(StrEnum):
    """How far a task is."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # The cloud said a word that we do not know.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class PrewarmProduct:
    """A product on whose hosts the image shall be."""

    product_id: str
    product_name: str


@dataclass(frozen=True)
class Prewarm:
    """One task of the account."""

    prewarm_id: str
    image: str
    region: str
    cluster_id: str
    state: PrewarmState
    # Of a credential that the account has; never anything else.
    registry_auth_id: str = ""
    # None: all of the region.
    products: tuple[PrewarmProduct, ...] = ()
    size_bytes: int | None = None
    note: str = ""
    # Why it failed, without any password.
    reasons: tuple[str, ...] = ()
    created_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True)
class PrewarmQuota:
    """How many tasks the account has and may have, and how large an image may be."""

    used: int
    limit: int
    per_image_gb: int

    @property
    def is_used_up(self) -> bool:
        return self.used >= self.limit


@dataclass(frozen=True)
class PrewarmOrder:
    """One task to make."""

    image: str
    cluster_id: str
    registry_auth_id: str = ""
    products: tuple[PrewarmProduct, ...] = ()
    note: str = ""

    @property
    def digest(self) -> str:
        """Return what tells it from orders of something else: what is pulled, and where to."""
        words = [self.image, self.cluster_id, *sorted(it.product_id for it in self.products)]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()

    def is_done_by(self, task: Prewarm) -> bool:
        """Tell whether this task pulls the same to the same place."""
        ids = {it.product_id for it in self.products}
        same_place = (self.image, self.cluster_id) == (task.image, task.cluster_id)
        return same_place and ids == {it.product_id for it in task.products}


@dataclass(frozen=True)
class PrewarmIntent:
    """A create that may have been sent; written down before the first byte goes out.

    Tasks have neither name nor tag: a task for the same that was not there before is the witness.
    """

    # Tells it from every other intent of the same words.
    nonce: str
    # The tasks for the same that were there already: failed ones.
    before: tuple[str, ...]
    sent_at: datetime

    def to_text(self) -> str:
        """Return it as it is stored."""
        return json.dumps([self.nonce, list(self.before), self.sent_at.isoformat()])

    @staticmethod
    def of_text(stored: str) -> PrewarmIntent:
        """Return what was stored."""
        nonce, before, sent_at = json.loads(stored)
        return PrewarmIntent(nonce, tuple(before), datetime.fromisoformat(sent_at))
