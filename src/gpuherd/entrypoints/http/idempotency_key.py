"""`Idempotency-Key`: the caller's own key for one request, so that a repeat of it is recognised."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.types import Scope

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.entrypoints.fingerprints import fingerprints_of
from gpuherd.ports.access import IdempotencyClaim, Sealer

IDEMPOTENCY_HEADER = b"idempotency-key"
REPLAYED_HEADER = "Idempotency-Replayed"
_KEY_PATTERN = re.compile(rb"[\x21-\x7e]{1,255}")


def claim_of(scope: Scope, body: Any, sealer: Sealer) -> IdempotencyClaim | None:
    """Return the claim that a request makes, None if it makes none.

    Requests are the same if method, path and body are; the order of fields, and blanks, do not count.
    """
    sent = [value for name, value in scope["headers"] if name == IDEMPOTENCY_HEADER]
    if not sent:
        return None
    if len(sent) > 1 or not _KEY_PATTERN.fullmatch(sent[0]):
        message = "Idempotency-Key must be given once, with 1 to 255 visible ASCII characters"
        raise InvalidRequest([FieldProblem("Idempotency-Key", "INVALID_IDEMPOTENCY_KEY", message)])
    asked = json.dumps([scope["method"], scope["path"], body], sort_keys=True, separators=(",", ":"))
    now, *earlier = fingerprints_of(asked, body, sealer)
    return IdempotencyClaim(scope["caller"].key_id, sent[0].decode("ascii"), now, tuple(earlier))
