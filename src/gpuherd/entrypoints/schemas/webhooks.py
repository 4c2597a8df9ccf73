"""The bodies of `/api/webhooks/…`: read strictly, all problems at once."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.events import WEBHOOK_TYPES
from gpuherd.domain.net.egress_policy import BlockedTarget, EgressPolicy, check_url
from gpuherd.ports.webhooks import DeliveryFilter

LABEL_MAX_CHARS = 100


@dataclass(frozen=True)
class NewEndpoint:
    """An endpoint as somebody wants it."""

    url: str
    events: tuple[str, ...]
    label: str


@dataclass(frozen=True)
class ReplayRequest:
    """What to replay."""

    since: datetime
    state: DeliveryFilter
    endpoint_id: str | None


class BodyReader:
    """Reads fields one by one and collects what is wrong with them."""

    def __init__(self, values: Mapping[str, Any], *known: str):
        self._values = values
        self._problems = [
            FieldProblem(name[:50], "UNKNOWN_FIELD", f"there is no field {name[:50]!r} here")
            for name in values
            if name not in known
        ]

    def url(self, name: str, targets: EgressPolicy) -> str:
        value = self.text(name, "INVALID_WEBHOOK_URL", required=True)
        try:
            if value is not None:
                check_url(value, targets)
        except BlockedTarget as blocked:
            self.add_problem(name, "INVALID_WEBHOOK_URL", f"cannot be used: {blocked}")
        return value or ""

    def text(self, name: str, code: str, *, required: bool = False) -> str | None:
        value = self._values.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not value.strip():
            self.add_problem(name, code, "must be a text that is not blank")
            return None
        return value

    def label(self) -> str:
        value = self.text("label", "INVALID_LABEL") or ""
        odd = any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in value)
        if odd or len(value) > LABEL_MAX_CHARS:
            message = f"must have at most {LABEL_MAX_CHARS} characters and no control characters"
            self.add_problem("label", "INVALID_LABEL", message)
        return value.strip()

    def events(self) -> tuple[str, ...]:
        value = self._values.get("events")
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(it in WEBHOOK_TYPES for it in map(str, value)):
            known = ", ".join(sorted(WEBHOOK_TYPES))
            self.add_problem("events", "INVALID_EVENTS", f"must be a list of some of these types: {known}")
            return ()
        return tuple(sorted(set(value)))

    def since(self) -> datetime:
        value = self._values.get("since")
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else None
            if moment is not None:
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        self.add_problem("since", "INVALID_SINCE", "must be a time in ISO 8601, like 2026-01-31T12:00:00Z")
        return datetime.max.replace(tzinfo=UTC)

    def state(self) -> DeliveryFilter:
        value = self._values.get("state", DeliveryFilter.FAILED.value)
        if value not in (DeliveryFilter.FAILED.value, DeliveryFilter.DEAD.value):
            self.add_problem("state", "INVALID_STATE", "must be failed or dead")
            return DeliveryFilter.FAILED
        return DeliveryFilter(value)

    def add_problem(self, name: str, code: str, message: str) -> None:
        self._problems.append(FieldProblem(name, code, f"{name} {message}"))

    def done(self) -> None:
        """Raise if anything was wrong."""
        if self._problems:
            raise InvalidRequest(self._problems)


def parse_endpoint(values: Mapping[str, Any], targets: EgressPolicy) -> NewEndpoint:
    """Return the endpoint that is asked for."""
    body = BodyReader(values, "url", "events", "label")
    wanted = NewEndpoint(body.url("url", targets), body.events(), body.label())
    body.done()
    return wanted


def parse_replay(values: Mapping[str, Any]) -> ReplayRequest:
    """Return what is to be replayed."""
    body = BodyReader(values, "since", "state", "endpointId")
    wish = ReplayRequest(body.since(), body.state(), body.text("endpointId", "INVALID_ENDPOINT_ID"))
    body.done()
    return wish


def parse_test(values: Mapping[str, Any], targets: EgressPolicy) -> tuple[str | None, str | None]:
    """Return the URL or the id of the endpoint that is to be tested."""
    body = BodyReader(values, "url", "endpointId")
    if ("url" in values) == ("endpointId" in values):
        body.add_problem("url", "INVALID_WEBHOOK_URL", "or endpointId must be given, not both")
        body.done()
    by_url = "url" in values
    url = body.url("url", targets) if by_url else None
    endpoint_id = None if by_url else body.text("endpointId", "INVALID_ENDPOINT_ID", required=True)
    body.done()
    return url, endpoint_id
