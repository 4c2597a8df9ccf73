"""`Idempotency-Key`: the caller's own key for one request, so that a repeat of it is recognised."""

from __future__ import annotations

import re
from typing import Any

from starlette.types import Scope

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.ports.access import IdempotencyClaim
from gpuherd.usecases.access.claim_request import ClaimRequest

IDEMPOTENCY_HEADER = b"idempotency-key"
REPLAYED_HEADER = "Idempotency-Replayed"
_KEY_PATTERN = re.compile(rb"[\x21-\x7e]{1,255}")


def claim_of(scope: Scope, body: Any, claim_request: ClaimRequest) -> IdempotencyClaim | None:
    """Return the claim that a request makes, None if it makes none."""
    if IDEMPOTENCY_HEADER not in dict(scope["headers"]):
        return None
    sent = [value for name, value in scope["headers"] if name == IDEMPOTENCY_HEADER]
    if len(sent) > 1 or not _KEY_PATTERN.fullmatch(sent[0]):
        message = "Idempotency-Key must be given once, with 1 to 255 visible ASCII characters"
        raise InvalidRequest([FieldProblem("Idempotency-Key", "INVALID_IDEMPOTENCY_KEY", message)])
    key = sent[0].decode("ascii")
    return claim_request(scope["caller"].key_id, key, scope["method"], scope["path"], body=body)
