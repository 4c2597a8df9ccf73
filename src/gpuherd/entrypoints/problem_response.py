"""Errors as problem documents, all problems at once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from starlette.responses import Response

from gpuherd.contract.body_models import RequestModel, ShortText
from gpuherd.contract.lease_models import LeaseField
from gpuherd.contract.wire_models import FieldError, Problem, Refusal
from gpuherd.domain.api_key import Caller
from gpuherd.domain.cloud.template import TemplateUnusable
from gpuherd.domain.errors import (
    CloudError,
    CloudUnavailable,
    Conflict,
    FieldProblem,
    GpuherdError,
    IdempotencyKeyReused,
    InvalidRequest,
    NoCapacity,
    NotFound,
    OutOfStock,
    QuotaExceeded,
    StaleWrite,
    StoreUnavailable,
)
from gpuherd.domain.instance.plan import PlanExpired
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.use_case_access import Plane, current_request
from gpuherd.entrypoints.values_from_bodies import target_check
from gpuherd.usecases.access.audit_requests import TooManyRepeats
from gpuherd.usecases.events.manage_webhooks import TooManyTests, TooManyTestsOfKey
from gpuherd.usecases.events.stream_events import TooManyStreams, TooManyStreamsOfKey
from gpuherd.usecases.instances.check_launch import AskedValues, judge_values
from gpuherd.usecases.instances.launch_spec_from_body import lease_of


class Unauthorized(GpuherdError):
    """No key, or none that we know."""

    code = "UNAUTHORIZED"


class Forbidden(GpuherdError):
    """The key is known, but may not do this."""

    code = "FORBIDDEN"


class TooManyRequests(GpuherdError):
    """The key has used up its requests for now."""

    code = "RATE_LIMIT_EXCEEDED"

    def __init__(self, message: str, retry_after_s: float):
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BodyTooLarge(GpuherdError):
    """More bytes came than any honest request has."""

    code = "BODY_TOO_LARGE"


class HeadersTooLarge(GpuherdError):
    """The address and the headers together are larger than 16 KiB."""

    code = "HEADERS_TOO_LARGE"

    def __init__(self) -> None:
        super().__init__("the address and headers are larger than anybody needs")


class MalformedRequest(GpuherdError):
    """Another HTTP version, or two statements of how long the body is."""

    code = "MALFORMED_REQUEST"

    def __init__(self) -> None:
        super().__init__("this is not HTTP/1.1")


class Overloaded(GpuherdError):
    """More connections are open than the server serves."""

    code = "OVERLOADED"

    def __init__(self) -> None:
        super().__init__("too many connections are open")


class RequestTimeout(GpuherdError):
    """The body did not come to its end in time."""

    code = "REQUEST_TIMEOUT"


STATUS_OF: dict[type[GpuherdError], int] = {
    InvalidRequest: 400,
    Unauthorized: 401,
    Forbidden: 403,
    MalformedRequest: 400,
    RequestTimeout: 408,
    BodyTooLarge: 413,
    HeadersTooLarge: 431,
    Overloaded: 503,
    TemplateUnusable: 400,
    NotFound: 404,
    Conflict: 409,
    StaleWrite: 409,
    PlanExpired: 410,
    NoCapacity: 409,
    OutOfStock: 409,
    IdempotencyKeyReused: 422,
    QuotaExceeded: 429,
    TooManyRequests: 429,
    TooManyStreamsOfKey: 429,
    TooManyStreams: 503,
    TooManyTestsOfKey: 429,
    TooManyRepeats: 429,
    TooManyTests: 503,
    CloudUnavailable: 503,
    StoreUnavailable: 503,
    CloudError: 502,
}


TITLES = {
    400: "The request is not valid",
    401: "An API key is needed",
    403: "This key may not do that",
    404: "Not found",
    405: "Method not allowed",
    408: "The request did not arrive in time",
    409: "Not possible in this state",
    410: "No longer available",
    413: "The request is too large",
    415: "JSON is expected",
    422: "The request contradicts an earlier one",
    429: "Too many requests",
    431: "The headers are too large",
    500: "Something went wrong inside gpuherd",
    502: "The cloud did not accept this",
    503: "Not available right now",
}


HEADERS_OF = {401: {"WWW-Authenticate": "Bearer"}}


# After these, what else comes on the connection cannot be understood, or is not wanted.
CLOSING_CODES = frozenset(
    kind.code for kind in (RequestTimeout, HeadersTooLarge, MalformedRequest, Overloaded)
)


RETRY_AFTER_S = 1.0
MEDIA_TYPE = "application/problem+json"


# A reply does not repeat all of a megabyte that somebody sent.
DETAIL_MAX, ERRORS_MAX, FIELD_MAX, MESSAGE_MAX = 1000, 50, 100, 300


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[FieldProblem] = (),
    details: Mapping[str, Any] | None = None,
    retry_after_s: float | None = None,
) -> Refusal:
    """Return a problem document, still without the ids and the time of its request."""
    return Refusal(
        type=f"urn:gpuherd:problem:{code.lower().replace('_', '-')}",
        title=TITLES.get(status, "Error"),
        status=status,
        detail=_short(detail, DETAIL_MAX),
        code=code,
        errors=tuple(map(_field_error, errors[:ERRORS_MAX])) or None,
        details=details or None,
        retry_after=None if retry_after_s is None else math.ceil(retry_after_s),
    )


def _field_error(it: FieldProblem) -> FieldError:
    return FieldError(
        field=_short(it.field, FIELD_MAX), code=it.code, message=_short(it.message, MESSAGE_MAX)
    )


def problem_of(error: GpuherdError) -> Refusal:
    """Return the problem document for one of our errors."""
    status = next((STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), 500)
    retry_after_s = getattr(error, "retry_after_s", None)
    return problem(
        status,
        error.code,
        error.message,
        errors=error.problems if isinstance(error, InvalidRequest) else (),
        details=error.details,
        retry_after_s=(retry_after_s or RETRY_AFTER_S) if status == 503 else retry_after_s,
    )


def unexpected() -> Refusal:
    """Return the problem document for what nobody foresaw; it tells nothing of the inside."""
    words = "this is a defect in gpuherd; its log has more under this request id"
    return problem(500, "INTERNAL_ERROR", words)


def problem_response(refusal: Refusal) -> Response:
    """Return a problem document as the reply to the current request."""
    context = current_request.get()
    document = Problem.extending(
        refusal,
        request_id=context.request_id,
        correlation_id=context.correlation_id,
        timestamp=context.at,
    )
    extra = dict(HEADERS_OF.get(document.status, {}))
    if document.code in CLOSING_CODES:
        extra["Connection"] = "close"
    if document.retry_after is not None:
        extra["Retry-After"] = str(document.retry_after)
    body = json.dumps(document.model_dump(mode="json", fallback=str), ensure_ascii=False)
    return Response(body, status_code=document.status, media_type=MEDIA_TYPE, headers=extra)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


M = TypeVar("M", bound=RequestModel)


class _JudgedFields(RequestModel):
    """The fields whose values only the catalogue or the clock can judge, the same in all bodies."""

    region: ShortText | None = None
    regions: tuple[ShortText, ...] | None = None
    lease: LeaseField = None


JUDGED_FIELDS = frozenset(_JudgedFields.model_fields)


async def parsed(model: type[M], said: Mapping[str, Any], plane: Plane, caller: Caller) -> M:
    """Return what was asked for, or raise every problem that it has, also with what is well formed."""
    try:
        return validate_body(model, said, target_check(plane.targets))
    except InvalidRequest as refused:
        judged = await judge_values(plane.services, _well_formed(said, refused.problems), caller.limits)
        raise InvalidRequest([*refused.problems, *judged]) from None


def _well_formed(said: Mapping[str, Any], problems: Sequence[FieldProblem]) -> AskedValues:
    wrong = {it.field.partition(".")[0] for it in problems}
    fields = validate_body(_JudgedFields, {name: said[name] for name in JUDGED_FIELDS & said.keys() - wrong})
    lease = lease_of(fields.lease)
    return AskedValues(fields.region, fields.regions, lease)
