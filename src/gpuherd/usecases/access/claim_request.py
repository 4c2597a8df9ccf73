"""Claim the caller's key for a request, with a fingerprint that tells a repeat from another request."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from gpuherd.ports.access import IdempotencyClaim, Sealer

# Fields of a body whose values count as secrets.
# guard: no hash from which a registry password could be guessed
SECRET_FIELDS = ("envs", "value", "password")


@dataclass(frozen=True)
class ClaimRequest:
    sealer: Sealer

    def __call__(self, key_id: str, key: str, *asked: str, body: Any) -> IdempotencyClaim:
        """Requests are the same if `asked` and body are; the order of fields, and blanks, do not count."""
        text = json.dumps([*asked, body], sort_keys=True, separators=(",", ":"))
        now, *earlier = self._fingerprints(text, body)
        return IdempotencyClaim(key_id, key, now, tuple(earlier))

    def _fingerprints(self, text: str, body: Any) -> tuple[str, ...]:
        """Return the fingerprint, and what it was with earlier keys.

        It is stored. Of a body with secrets it is keyed: from a plain hash a short secret could be guessed.
        """
        if isinstance(body, dict) and any(body.get(name) for name in SECRET_FIELDS):
            return self.sealer.digests(text)
        return (hashlib.sha256(text.encode()).hexdigest(),)
