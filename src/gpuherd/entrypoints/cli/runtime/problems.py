"""What can go wrong between us and the server: wrong settings, no answer, or the answer no."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpuherd.entrypoints.cli.runtime.exit_codes import UNEXPECTED_REPLY


class BadConfiguration(Exception):
    """The settings of the command line itself are wrong; each problem is one sentence."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class CannotConnect(Exception):
    """No answer came. `sent` tells whether the server may have got, and obeyed, the request."""

    def __init__(self, url: str, reason: str = "", *, sent: bool = False) -> None:
        super().__init__(f"{url}: {reason}" if reason else url)
        self.url = url
        self.reason = reason
        self.sent = sent


class ApiProblem(Exception):
    """The server answered, and the answer is no (RFC 9457 problem+json)."""

    def __init__(
        self,
        code: str,
        title: str,
        detail: str = "",
        *,
        status: int,
        errors: Sequence[Mapping[str, Any]] = (),
        request_id: str | None = None,
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail or title}")
        self.code = code
        self.title = title
        self.detail = detail
        self.status = status
        self.errors = tuple(errors)
        self.request_id = request_id
        self.retry_after = retry_after
        self.details: Mapping[str, Any] = details or {}

    @property
    def temporary(self) -> bool:
        """Tell whether the same question may get a better answer later."""
        return self.status == 429 or self.status >= 500


def not_ours(status: int) -> ApiProblem:
    """Return the problem of having met a server that is not gpuherd."""
    return problem_of(status, {}, {})


def problem_of(status: int, headers: Mapping[str, str], body: Mapping[str, Any]) -> ApiProblem:
    """Read a refusal, whoever wrote it: the server, a proxy, or somebody else entirely."""
    errors = body.get("errors")
    details = body.get("details")
    return ApiProblem(
        str(body.get("code") or UNEXPECTED_REPLY),
        str(body.get("title") or "this is not an answer of gpuherd"),
        str(body.get("detail") or f"the server answered with HTTP {status}"),
        status=status,
        errors=[e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else (),
        request_id=str(body.get("requestId") or headers.get("X-Request-ID") or "") or None,
        retry_after=_seconds(body.get("retryAfter")) or _seconds(headers.get("Retry-After")),
        details=details if isinstance(details, dict) else {},
    )


def _seconds(value: object) -> float | None:
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None
