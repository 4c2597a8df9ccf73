"""The HTTP application: routes inside, surroundings outside."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gpuherd import __version__
from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.http import (
    caches,
    catalogue,
    creates,
    health,
    instances,
    jobs,
    metrics,
    operations,
    sync,
)
from gpuherd.entrypoints.http.hot_paths import HotPaths
from gpuherd.entrypoints.http.middleware import KeyCheck, Surroundings
from gpuherd.entrypoints.http.problems import problem, problem_of, problem_response, unexpected
from gpuherd.entrypoints.plane import Plane


def build_app(plane: Plane) -> ASGIApp:
    """Return the application for one plane."""
    app = FastAPI(
        title="gpuherd",
        version=__version__,
        description="Rent the cheapest GPU instance that is really there, and watch it until it works.",
        docs_url="/docs",
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.plane = plane
    # Operations first: `POST /api/instances/start` is not an instance called "start".
    for part in (operations, instances, jobs, creates, health, metrics, catalogue, caches, sync):
        app.include_router(part.router)
    app.add_exception_handler(GpuherdError, _ours)
    app.add_exception_handler(HTTPException, _theirs)
    app.add_exception_handler(Exception, _unexpected)
    inside = HotPaths(app, plane.read_instance)
    return Surroundings(KeyCheck(inside, plane.admin_key), plane.clock, plane.ids, plane.meter)


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, GpuherdError)
    return problem_response(problem_of(error))


async def _theirs(_: Request, error: Exception) -> Response:
    """The framework's own refusals: no such route, no such method."""
    assert isinstance(error, HTTPException)
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "HTTP_ERROR")
    return problem_response(problem(error.status_code, code, str(error.detail)))


async def _unexpected(_: Request, error: Exception) -> Response:
    return problem_response(unexpected())
