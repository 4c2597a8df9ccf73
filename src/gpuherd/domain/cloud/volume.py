"""Network volumes as they are ordered: what a create says, and what is remembered of it before it is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

VOLUME_GB_MIN, VOLUME_GB_MAX = 10, 4096


@dataclass(frozen=True)
class VolumeOrder:
    """One volume to make."""

    name: str
    cluster_id: str
    size_gb: int


@dataclass(frozen=True)
class VolumeIntent:
    """A create that may have been sent; written down before the first byte goes out.

    Volumes have no tag, so their name is the witness: none is made while another one has it.
    """

    # Tells it from every other intent of the same words.
    nonce: str
    cluster_id: str
    size_gb: int
    sent_at: datetime

    def is_for(self, order: VolumeOrder) -> bool:
        """Tell whether this create asked for the same."""
        return (self.cluster_id, self.size_gb) == (order.cluster_id, order.size_gb)

    def to_text(self) -> str:
        """Return it as it is stored."""
        stored = [self.nonce, self.cluster_id, self.size_gb, self.sent_at.isoformat()]
        return json.dumps(stored)

    @staticmethod
    def of_text(stored: str) -> VolumeIntent:
        """Return what was stored."""
        nonce, cluster_id, size_gb, sent_at = json.loads(stored)
        return VolumeIntent(nonce, cluster_id, size_gb, datetime.fromisoformat(sent_at))
