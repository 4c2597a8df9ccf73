"""Refusals: problem documents, RFC 9457."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuherd.contract.codec.model import Model
from gpuherd.contract.codec.values import LeftOutIfNone, Url


class FieldError(Model):
    """One thing that is wrong with a request."""

    field: str
    code: str
    message: str


class Refusal(Model):
    """A problem, before it is the reply to a request."""

    type: Url
    title: str
    status: int
    detail: str  # for people
    code: str  # for programs
    errors: LeftOutIfNone[tuple[FieldError, ...]] = None
    details: LeftOutIfNone[Mapping[str, Any]] = None  # it depends on the code
    retry_after: LeftOutIfNone[int] = None  # seconds


class Problem(Refusal):
    """A problem document, RFC 9457."""

    request_id: str
    correlation_id: str
    timestamp: datetime
