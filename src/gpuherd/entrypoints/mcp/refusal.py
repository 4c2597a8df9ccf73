"""Refusals: a code, the reason, and what would be allowed. An agent reads them, and a person after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from gpuherd.client import ApiError, GpuherdError
from gpuherd.entrypoints.mcp.plain import plain, plain_data

ALLOWED = {
    "PLAN_EXPIRED": "call plan_rental again and rent the new plan",
    "PLAN_NOT_FOUND": "call plan_rental first, and rent the planId that it returns",
    "FORBIDDEN": "only to look: this key may not change anything",
    "UNAUTHORIZED": "nothing: the key is not known to this server; ask a person for another one",
    "BUDGET_EXHAUSTED": "something cheaper or shorter, within what details say is left",
    "QUOTA_EXCEEDED": "as much as the limits in details leave; stop or delete something first",
    "LEASE_ENDED": "a new rental: plan_rental, then rent",
    "INVALID_LEASE": "a shorter lease: details or the reason say how long it may be",
    "NO_OPTIMAL_PRODUCT_ANY_REGION": "another product, region or price: find_offers shows what there is",
    "INVALID_VOLUMES": "volumes that list_volumes shows, all of one region, each at a path of its own",
    "REGISTRY_AUTH_NOT_FOUND": "an id that list_registry_credentials shows",
    "INSTANCE_NOT_FOUND": "an id or name that list_instances returns",
}
OTHERWISE = "read the reason, and change the request or ask a person"


def refusal(code: str, reason: str, allowed: str, details: Mapping[str, Any] | None = None) -> ToolError:
    """Return what a tool raises: JSON, so that no text in it can pass for ours."""
    said = {"refused": code, "reason": plain(reason), "allowed": allowed}
    if details:
        said["details"] = plain_data(dict(details))
    return ToolError(json.dumps(said, ensure_ascii=False, default=str))


def refusal_of(error: GpuherdError) -> ToolError:
    """Return what the server, or the way to it, has refused."""
    if not isinstance(error, ApiError):
        advice = "try again; if it was a rental, with the same planId: it never rents twice"
        return refusal("NO_ANSWER", str(error), advice)
    problems = {it.field: it.message for it in error.errors}
    allowed = ALLOWED.get(error.code, OTHERWISE)
    return refusal(error.code, error.detail, allowed, {**error.details, **problems})
