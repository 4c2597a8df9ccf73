"""The server's answers to a command: a JSON reply, or a failure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# No gpuherd server gives such an answer: GPUHERD_URL points to another program.
UNEXPECTED_REPLY = "UNEXPECTED_REPLY"


class ServerFailure(Exception):
    """The server did not do what a command requested."""


class ServerUnreachable(ServerFailure):
    """No answer came. `sent` is True if the server may have received the request."""

    def __init__(self, url: str, reason: str, *, sent: bool) -> None:
        super().__init__(f"cannot talk with gpuherd at {url}: {reason}")
        self.url = url
        self.reason = reason
        self.sent = sent


class UnexpectedReply(ServerFailure):
    """The answer is not from a gpuherd server."""

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class ServerRefusal(ServerFailure):
    """The server rejects the request; `problem` is its problem document, empty if another program answers."""

    def __init__(
        self, status: int, problem: Mapping[str, Any], *, retry_after_s: float | None = None, detail: str = ""
    ) -> None:
        self.status = status
        self.code = str(problem.get("code") or UNEXPECTED_REPLY)
        self.title = str(problem.get("title") or "")
        self.detail = str(problem.get("detail") or problem.get("title") or detail)
        super().__init__(self.detail)
        self.errors = [error for error in _list_of(problem.get("errors")) if isinstance(error, dict)]
        details = problem.get("details")
        self.details: Mapping[str, Any] = details if isinstance(details, dict) else {}
        self.request_id = str(problem.get("requestId") or "") or None
        self.retry_after_s = seconds_of(problem.get("retryAfter"), retry_after_s)

    @property
    def is_temporary(self) -> bool:
        """Return True if the same request may succeed later."""
        return self.status == 429 or self.status >= 500


class ServerReply(dict[str, Any]):
    """An object of a reply. A missing required field raises `UnexpectedReply`."""

    def __missing__(self, name: str) -> Any:
        raise UnexpectedReply(f"the server's answer has no {name}; is it as new as this client?")


def _list_of(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def seconds_of(value: object, otherwise: float | None) -> float | None:
    """Return a number of seconds, or `otherwise` for anything else."""
    try:
        seconds = float(str(value))
    except ValueError:
        return otherwise
    return seconds if 0 <= seconds < math.inf else otherwise
