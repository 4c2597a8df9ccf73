"""The HTTP application: routes inside, surroundings outside."""

from __future__ import annotations

from functools import cache

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Scope

from gpuherd import __version__
from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.http import (
    audit,
    caches,
    catalogue,
    creates,
    events,
    health,
    instances,
    jobs,
    keys,
    metrics,
    operations,
    orphans,
    plans,
    sync,
    webhooks,
)
from gpuherd.entrypoints.http.access import check_declared, check_scope, with_access
from gpuherd.entrypoints.http.body_limits import BODY_TIMEOUT_S
from gpuherd.entrypoints.http.hot_paths import HotPaths
from gpuherd.entrypoints.http.middleware import KeyCheck, Surroundings
from gpuherd.entrypoints.http.once import Once
from gpuherd.entrypoints.http.openapi import completed
from gpuherd.entrypoints.http.problems import problem, problem_of, problem_response, unexpected
from gpuherd.entrypoints.http.request_log import NoteRequest, log_request
from gpuherd.entrypoints.http.worker_door import WorkerDoor
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.web.lazy_pages import LazyPages

# Operations first: `POST /api/instances/start` is not an instance called "start".
PARTS = (
    operations,
    instances,
    plans,
    jobs,
    creates,
    health,
    metrics,
    catalogue,
    caches,
    sync,
    webhooks,
    orphans,
    keys,
    audit,
    events,
)


def build_app(
    plane: Plane,
    note_request: NoteRequest = log_request,
    *,
    body_timeout_s: float = BODY_TIMEOUT_S,
    worker: bool = False,
) -> ASGIApp:
    """Return the application for one plane; of a worker, what tells how it is."""
    app = FastAPI(
        title="gpuherd",
        version=__version__,
        description="Rent the cheapest GPU instance that is really there, and watch it until it works.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.plane = plane
    check_declared(part.router for part in PARTS)
    for part in PARTS:
        app.include_router(part.router, dependencies=[Depends(check_scope)])
    described = app.openapi
    app.openapi = cache(lambda: with_access(completed(described())))  # type: ignore[method-assign]
    app.add_exception_handler(GpuherdError, _ours)
    app.add_exception_handler(HTTPException, _theirs)
    app.add_exception_handler(Exception, _unexpected)
    inside = Once(HotPaths(app, plane.read_instance), plane.keys.claims, _has_route)
    pages = LazyPages(plane, app.openapi)
    guarded: ASGIApp = KeyCheck(inside, plane.keys.registry, pages, plane.keys.sessions)
    if worker:
        guarded = WorkerDoor(guarded)
    return Surroundings(guarded, plane.clock, plane.ids, plane.meter, note_request, body_timeout_s)


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, GpuherdError)
    return problem_response(problem_of(error))


async def _theirs(request: Request, error: Exception) -> Response:
    """The framework's own refusals: no such route, no such method."""
    assert isinstance(error, HTTPException)
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "HTTP_ERROR")
    response = problem_response(problem(error.status_code, code, str(error.detail)))
    if error.status_code == 405:
        response.headers["Allow"] = ", ".join(sorted(_methods(request.scope)))
    return response


def _has_route(scope: Scope) -> bool:
    return scope["method"] in _methods(scope)


def _methods(scope: Scope) -> set[str]:
    """Return the methods that the path has; the framework would tell those of its first route only."""
    routes = (route for part in PARTS for route in part.router.routes if isinstance(route, APIRoute))
    fitting = (route for route in routes if route.matches(scope)[0] is not Match.NONE)
    return {method for route in fitting for method in route.methods or ()}


async def _unexpected(_: Request, error: Exception) -> Response:
    return problem_response(unexpected())
