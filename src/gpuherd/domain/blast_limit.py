"""How many may be lost or removed at once before it is more likely a mistake of ours than the truth."""

from __future__ import annotations

ALWAYS_ALLOWED = 2
SHARE = 10


def blast_limit(instances: int) -> int:
    """Return how many instances may be concerned at once: a tenth of them, and never less than two."""
    return max(ALWAYS_ALLOWED, instances // SHARE)
