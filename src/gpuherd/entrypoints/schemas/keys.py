"""The body of `POST /api/keys`: read strictly, all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from gpuherd.domain.access.api_key import NO_LIMITS, Limits, Scope
from gpuherd.entrypoints.schemas.webhooks import BodyReader
from gpuherd.usecases.access.manage_keys import KeyRequest

KEY_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "label": {"type": "string", "maxLength": 100},
                        "scopes": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "enum": [it.value for it in Scope]},
                        },
                        "expiresAt": {"type": "string", "format": "date-time"},
                        "limits": {
                            "type": "object",
                            "properties": {
                                "requestsPerMinute": {"type": "integer", "minimum": 1},
                                "maxGpus": {"type": "integer", "minimum": 0},
                                "maxHourlyUsd": {"type": "string"},
                            },
                            "additionalProperties": False,
                        },
                    },
                    "required": ["scopes"],
                    "additionalProperties": False,
                }
            }
        },
    }
}
LIMITS = ("requestsPerMinute", "maxGpus", "maxHourlyUsd")
COUNT_MAX = 1_000_000
USD_MAX = Decimal(1_000_000)


def parse_key(values: Mapping[str, Any], now: datetime) -> KeyRequest:
    """Return the key that is asked for."""
    body = BodyReader(values, "label", "scopes", "expiresAt", "limits")
    wanted = KeyRequest(
        scopes=_scopes(body, values.get("scopes")),
        label=body.label(),
        expires_at=_expires_at(body, values.get("expiresAt"), now),
        limits=_limits(body, values.get("limits")),
    )
    body.done()
    return wanted


def _scopes(body: BodyReader, value: Any) -> tuple[Scope, ...]:
    known = {it.value: it for it in Scope}
    if not isinstance(value, list) or not value or not all(isinstance(it, str) for it in value):
        value = [""]
    if any(it not in known for it in value):
        body.add_problem("scopes", "INVALID_SCOPES", f"must be a list of some of: {', '.join(known)}")
        return (Scope.READ,)
    return tuple(it for name, it in known.items() if name in value)


def _expires_at(body: BodyReader, value: Any, now: datetime) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is not None:
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
            if moment > now:
                return moment
    except (ValueError, OverflowError):
        pass
    message = "must be a time to come in ISO 8601, like 2027-01-31T12:00:00Z"
    body.add_problem("expiresAt", "INVALID_EXPIRES_AT", message)
    return None


def _limits(body: BodyReader, value: Any) -> Limits:
    if value is None:
        return NO_LIMITS
    if not isinstance(value, dict):
        body.add_problem("limits", "INVALID_LIMITS", "must be an object")
        return NO_LIMITS
    for name in value:
        if name not in LIMITS:
            # A misspelt limit is none.
            body.add_problem(f"limits.{name[:50]}", "UNKNOWN_FIELD", f"is not known; there are: {LIMITS}")
    return Limits(
        requests_per_minute=_count(body, value, "requestsPerMinute", 1),
        max_gpus=_count(body, value, "maxGpus", 0),
        max_hourly_usd=_usd(body, value.get("maxHourlyUsd")),
    )


def _count(body: BodyReader, limits: dict[str, Any], name: str, low: int) -> int | None:
    value = limits.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= COUNT_MAX:
        message = f"must be a whole number from {low} to {COUNT_MAX}"
        body.add_problem(f"limits.{name}", "INVALID_LIMITS", message)
        return None
    return value


def _usd(body: BodyReader, value: Any) -> Decimal | None:
    if value is None:
        return None
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            amount = Decimal(str(value))
            if amount.is_finite() and 0 <= amount <= USD_MAX:
                return amount
    except InvalidOperation:
        pass
    message = f"must be an amount in USD from 0 to {USD_MAX}, like 1.50"
    body.add_problem("limits.maxHourlyUsd", "INVALID_LIMITS", message)
    return None
