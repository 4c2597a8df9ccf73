"""Errors as pages: what happened, why, and where to go from here."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.problem import Refusal
from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints import problems
from gpuherd.entrypoints.request_context import current_request
from gpuherd.entrypoints.web.rendering import page


async def domain_error(request: Request, error: Exception) -> Response:
    """Show one of our errors."""
    assert isinstance(error, GpuherdError)
    return _shown(request, problems.problem_of(error))


async def framework_error(request: Request, error: Exception) -> Response:
    """Show that there is no such page, or that it does not take this."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _shown(request, problems.problem(404, "NOT_FOUND", "there is no page at this address"))
    return _shown(request, problems.problem(error.status_code, "HTTP_ERROR", str(error.detail)))


async def unexpected(request: Request, _: Exception) -> Response:
    """Show that it is our fault, and nothing of the inside."""
    return _shown(request, problems.unexpected())


def _shown(request: Request, problem: Refusal) -> Response:
    retry_after = problem.retry_after
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return page(
        request,
        "error.html",
        status=problem.status,
        headers=headers,
        problem=problem,
        request_id=current_request.get().request_id,
    )
