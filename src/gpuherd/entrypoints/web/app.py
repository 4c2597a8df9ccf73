"""The pages as one application: routes, who may use them, how errors look, and what browsers may load."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.auth.authorization import OPEN, PAGE_SCOPES, UndeclaredRoute, require_scope
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web import error_pages, static_files
from gpuherd.entrypoints.web.forms import check_token, read_form
from gpuherd.entrypoints.web.pages import api_docs, costs, jobs, orphans, overview, settings, volumes
from gpuherd.entrypoints.web.pages.access import audit, keys, login, secrets
from gpuherd.entrypoints.web.pages.access.login import LoginRateLimiter
from gpuherd.entrypoints.web.pages.cloud import cloud, creates, offers
from gpuherd.entrypoints.web.pages.images import images, prewarms, registry, templates
from gpuherd.entrypoints.web.pages.instances import instance, instances, rent
from gpuherd.entrypoints.web.pages.webhooks import endpoints, webhooks
from gpuherd.entrypoints.web.routes import Handler, Routes

PAGES: Routes = {
    **api_docs.ROUTES,
    **audit.ROUTES,
    **cloud.ROUTES,
    **creates.ROUTES,
    **endpoints.ROUTES,
    **images.ROUTES,
    **instance.ROUTES,
    **instances.ROUTES,
    **jobs.ROUTES,
    **keys.ROUTES,
    **login.ROUTES,
    **costs.ROUTES,
    **offers.ROUTES,
    **orphans.ROUTES,
    **overview.ROUTES,
    **prewarms.ROUTES,
    **registry.ROUTES,
    **rent.ROUTES,
    **secrets.ROUTES,
    **settings.ROUTES,
    **static_files.ROUTES,
    **templates.ROUTES,
    **volumes.ROUTES,
    **webhooks.ROUTES,
}
# Nothing but what this server sends: no inline script, no inline style, no other host, no frame around us.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # Not `no-referrer`: with that, browsers do not say where a form comes from.
    (b"referrer-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
]


def build_pages(plane: Plane, document: Callable[[], dict[str, Any]]) -> ASGIApp:
    """Return the dashboard for one plane; `document` gives the OpenAPI document of the API beside it."""
    handlers = PAGES
    if set(handlers) != set(PAGE_SCOPES):
        raise UndeclaredRoute(
            f"pages and their declarations differ: {sorted(set(handlers) ^ set(PAGE_SCOPES))}"
        )
    app = Starlette(
        # In the order of the declaration: /instances/new is not an instance called "new".
        routes=[Route(it[1], _guarded(handlers[it], it), methods=[it[0]]) for it in PAGE_SCOPES],
        exception_handlers={
            GpuherdError: error_pages.domain_error,
            HTTPException: error_pages.framework_error,
            Exception: error_pages.unexpected,
        },
    )
    app.router.redirect_slashes = False
    app.state.plane = plane
    app.state.document = document
    app.state.login_limiter = LoginRateLimiter(plane.clock)
    app.state.summaries = overview.summary_cache(plane.clock)
    return PageHeadersMiddleware(app)


def _guarded(handler: Handler, declared: tuple[str, str]) -> Handler:
    method, path = declared
    needed, route = PAGE_SCOPES[declared], SimpleNamespace(path=path)

    async def endpoint(request: Request) -> Response:
        # For the meter.
        request.scope["route"] = route
        # Set by the authentication middleware, which leaves it to the page to show it.
        if refusal := request.scope.get("refusal"):
            raise refusal
        if needed is not OPEN:
            require_scope(request, needed)
        if method == "POST":
            request.state.form = form = await read_form(request)
            if needed is not OPEN:
                check_token(form, request.scope["session"])
        elif needed is not OPEN:
            # Before anything that the page shows is read, so that its stream begins where the page ends.
            request.state.event_position = await plane_of(request).events.history.position()
        return await handler(request)

    return endpoint


class PageHeadersMiddleware:
    """Adds to every reply what browsers are to hold themselves to."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        await self._app(scope, receive, reply)
