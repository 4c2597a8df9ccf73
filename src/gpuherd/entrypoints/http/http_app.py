"""The HTTP API: routers, middleware, handlers, the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gpuherd import __version__
from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.http import (
    access_routes,
    catalogue_routes,
    cloud_routes,
    instance_routes,
    money_routes,
    service_routes,
    webhook_routes,
)
from gpuherd.entrypoints.http import (
    access_routes as keys,
)
from gpuherd.entrypoints.http import (
    access_routes as secrets,
)
from gpuherd.entrypoints.http import (
    catalogue_routes as catalogue,
)
from gpuherd.entrypoints.http import (
    catalogue_routes as prewarms,
)
from gpuherd.entrypoints.http import (
    catalogue_routes as registry,
)
from gpuherd.entrypoints.http import (
    cloud_routes as caches,
)
from gpuherd.entrypoints.http import (
    cloud_routes as cloud,
)
from gpuherd.entrypoints.http import (
    cloud_routes as creates,
)
from gpuherd.entrypoints.http import (
    cloud_routes as sync,
)
from gpuherd.entrypoints.http import (
    instance_routes as leases,
)
from gpuherd.entrypoints.http import (
    instance_routes as operations,
)
from gpuherd.entrypoints.http import (
    instance_routes as plans,
)
from gpuherd.entrypoints.http import (
    money_routes as costs,
)
from gpuherd.entrypoints.http import (
    service_routes as health,
)
from gpuherd.entrypoints.http import (
    service_routes as jobs,
)
from gpuherd.entrypoints.http import (
    service_routes as metrics,
)
from gpuherd.entrypoints.http.idempotent_route import IdempotencyMiddleware
from gpuherd.entrypoints.http.openapi_document import completed_openapi
from gpuherd.entrypoints.http.request_middleware import (
    FastPaths,
    LimitRequests,
    RequestContextMiddleware,
    TracingMiddleware,
    WorkerOnlyMiddleware,
)
from gpuherd.entrypoints.http_auth import AuthenticationMiddleware, AuthorizationMiddleware
from gpuherd.entrypoints.problem_response import (
    problem,
    problem_of,
    problem_response,
    unexpected,
)
from gpuherd.entrypoints.route_scopes import RouteTable, with_security
from gpuherd.entrypoints.use_case_access import Plane

OpenApiDocument = Callable[[], dict[str, Any]]


NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


# Operations first: `POST /api/instances/start` is not an instance called "start".
ROUTERS = (
    operations.operation_router,
    instance_routes.instance_router,
    leases.lease_router,
    plans.plan_router,
    jobs.job_router,
    cloud.cloud_router,
    creates.creates_router,
    health.health_router,
    metrics.metrics_router,
    catalogue.catalogue_router,
    registry.registry_router,
    prewarms.prewarm_router,
    caches.cache_router,
    sync.sync_router,
    webhook_routes.router,
    cloud_routes.orphan_router,
    keys.key_router,
    secrets.secret_router,
    access_routes.audit_router,
    costs.cost_router,
    money_routes.budget_router,
    catalogue_routes.volume_router,
    service_routes.event_router,
)


def build_app(
    plane: Plane,
    build_pages: Callable[[OpenApiDocument], ASGIApp],
    *,
    body_timeout_s: float,
    worker: bool,
) -> ASGIApp:
    """Return the API of one plane, and the pages beside it; of a worker, what tells how it is.

    Browsers and keys share the addresses, so one middleware tells whom a request is for. The pages show the
    document that describes the API.
    """
    app = FastAPI(
        title="gpuherd",
        version=__version__,
        description="Rent the cheapest GPU instance that is really there, and watch it until it works.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Its spans and logs would send bodies and addresses to the exporter that the environment names.
        telemetry=NO_TELEMETRY,
    )
    app.state.plane = plane
    routes = app.state.routes = RouteTable(ROUTERS)
    for router in ROUTERS:
        # As they are: `include_router` would put together every route once more for each application.
        app.router.routes.extend(router.routes)
    described = app.openapi
    app.openapi = cache(lambda: with_security(completed_openapi(described())))  # type: ignore[method-assign]
    app.add_exception_handler(GpuherdError, _domain_error)
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_exception_handler(Exception, _unexpected)
    # What has a fast path keeps its claims itself, so it does without the layer that keeps those of others.
    inside = FastPaths(app, IdempotencyMiddleware(app, plane.services))
    authorized = AuthorizationMiddleware(inside, routes)
    pages = build_pages(app.openapi)
    guarded: ASGIApp = AuthenticationMiddleware(
        authorized, plane.services.key_cache, pages, plane.services.sessions
    )
    if worker:
        guarded = WorkerOnlyMiddleware(guarded)
    outermost: ASGIApp = RequestContextMiddleware(
        guarded, plane.clock, plane.ids, plane.meter, body_timeout_s
    )
    return LimitRequests(TracingMiddleware(outermost, plane.tracer) if plane.tracer.is_on else outermost)


async def _domain_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, GpuherdError)
    return problem_response(problem_of(error))


async def _framework_error(request: Request, error: Exception) -> Response:
    """The framework's own refusals: no such route, no such method."""
    assert isinstance(error, HTTPException)
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "HTTP_ERROR")
    response = problem_response(problem(error.status_code, code, str(error.detail)))
    if error.status_code == 405:
        response.headers["Allow"] = ", ".join(sorted(request.app.state.routes.methods(request.scope["path"])))
    return response


async def _unexpected(_: Request, error: Exception) -> Response:
    return problem_response(unexpected())
