"""Requests and replies without any network: what is asked, and what a refusal means."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from gpuherd import __version__
from gpuherd.client.errors import (
    ApiError,
    Conflict,
    FieldError,
    Forbidden,
    InvalidRequest,
    NoCapacity,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedReply,
)

Json = dict[str, Any]
USER_AGENT = f"gpuherd-python/{__version__}"
NO_CONTENT = 204

ERROR_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
    429: TooManyRequests,
}
NO_CAPACITY = frozenset({"NO_OPTIMAL_PRODUCT", "NO_OPTIMAL_PRODUCT_ANY_REGION", "RESOURCE_CONSTRAINTS"})
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True)
class Request:
    """One question. Who asks, and where, is added by the one who carries it."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Json | None = None
    idempotency_key: str | None = None
    # None: as long as this client waits for any answer.
    timeout_s: float | None = None
    # Statuses other than 2xx that are answers and no refusals.
    accepted_statuses: frozenset[int] = field(default_factory=frozenset)
    # Of a stream: the last event that was received.
    last_event_id: str | None = None
    # It only asks, although it has a body.
    is_read_only: bool = False

    def __post_init__(self) -> None:
        if self.idempotency_key is not None and not _KEY.fullmatch(self.idempotency_key):
            raise ValueError("an idempotency_key has 1 to 255 visible ASCII characters")

    @property
    def is_repeatable(self) -> bool:
        """Tell whether asking twice is the same as asking once."""
        return self.method == "GET" or self.is_read_only or self.idempotency_key is not None

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body).encode()

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self.last_event_id is not None:
            headers |= {"Accept": "text/event-stream", "Last-Event-ID": self.last_event_id}
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        if self.idempotency_key is not None:
            headers["Idempotency-Key"] = self.idempotency_key
        return headers


@dataclass(frozen=True)
class Reply:
    """What came back; the names of the headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Json | None:
        try:
            value = json.loads(self.content)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


def get(path: str, **query: object) -> Request:
    """Return a question; what is None is not asked for."""
    given = tuple((name, _word(value)) for name, value in query.items() if value is not None)
    return Request("GET", path, given)


def path_segment(word: str) -> str:
    """Return a name or an id as a part of a path; nothing in it is taken as syntax."""
    if not word:
        # "/api/instances/" + "" would be another question.
        raise ValueError("an empty text names nothing")
    return quote(word, safe="").replace(".", "%2E")


def answer_of(request: Request, reply: Reply) -> Json:
    """Return what a reply says, or raise what it refuses."""
    if reply.status == NO_CONTENT:
        return {}
    body = reply.json
    if 200 <= reply.status < 300 or (reply.status in request.accepted_statuses and body is not None):
        if body is None:
            raise UnexpectedReply(_not_gpuherd(request, reply), status=reply.status)
        return body
    raise api_error(request, reply, body or {})


def listed(answer: Json, name: str) -> list[object]:
    """Return a list out of an answer."""
    found = answer.get(name)
    if not isinstance(found, list):
        raise UnexpectedReply(f"the server's answer has no list of {name}; is it as new as this client?")
    return found


def api_error(request: Request, reply: Reply, body: Json) -> ApiError:
    """Return the error that a problem document is about, whoever wrote it."""
    code = str(body.get("code") or "UNEXPECTED_REPLY")
    kind = ERROR_BY_STATUS.get(reply.status, Unavailable if reply.status >= 500 else ApiError)
    if kind is Conflict and code in NO_CAPACITY:
        kind = NoCapacity
    listed, details = body.get("errors"), body.get("details")
    errors = [it for it in listed if isinstance(it, dict)] if isinstance(listed, list) else []
    retry_after_s = seconds_of(body.get("retryAfter"))
    return kind(
        reply.status,
        code,
        str(body.get("detail") or body.get("title") or _not_gpuherd(request, reply)),
        errors=tuple(
            FieldError(*(str(it.get(name) or "") for name in ("field", "code", "message"))) for it in errors
        ),
        request_id=str(body.get("requestId") or reply.headers.get("x-request-id") or "") or None,
        retry_after_s=seconds_of(reply.headers.get("retry-after"))
        if retry_after_s is None
        else retry_after_s,
        details=details if isinstance(details, dict) else {},
        title=str(body.get("title") or ""),
    )


def seconds_of(value: object) -> float | None:
    """Return a number of seconds, or None for anything else."""
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def _not_gpuherd(request: Request, reply: Reply) -> str:
    return (
        f"{request.method} {request.path} was answered with HTTP {reply.status} and no document of gpuherd; "
        "is something else listening at this address?"
    )


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
