"""Fingerprints of requests, by which a repeat is told from another request under the same key."""

from __future__ import annotations

import hashlib
from typing import Any

from gpuherd.ports.access import Sealer

# Fields of a body whose values count as secrets.
SECRET_FIELDS = ("envs", "value")


def fingerprints_of(asked: str, body: Any, sealer: Sealer) -> tuple[str, ...]:
    """Return the fingerprint of what was asked, and what it was with earlier keys.

    It is stored. Of a body with secrets it is keyed: from a plain hash a short secret could be guessed.
    """
    if isinstance(body, dict) and any(body.get(name) for name in SECRET_FIELDS):
        return sealer.digests(asked)
    return (hashlib.sha256(asked.encode()).hexdigest(),)
