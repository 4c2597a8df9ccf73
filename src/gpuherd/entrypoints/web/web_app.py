"""The dashboard: its routes, headers and static files."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import (
    ASGIApp,
    Message,
    Receive,
    Scope,
    Send,
)

from gpuherd.domain.errors import GpuherdError
from gpuherd.entrypoints.http_auth import require_scope
from gpuherd.entrypoints.route_scopes import OPEN, PAGE_SCOPES, UndeclaredRoute
from gpuherd.entrypoints.use_case_access import Plane, plane_of
from gpuherd.entrypoints.web import (
    access_pages,
    catalogue_pages,
    instance_pages,
    launch_pages,
    money_pages,
    overview_pages,
    page_rendering,
    service_pages,
    session_pages,
    webhook_pages,
)
from gpuherd.entrypoints.web.page_forms import check_token, read_form
from gpuherd.entrypoints.web.page_rendering import Handler, Routes
from gpuherd.entrypoints.web.session_pages import LoginRateLimiter

APP = "gpuherd.entrypoints.web.web_app"


class LazyPages:
    """Builds the pages at the first request for one."""

    def __init__(self, plane: Plane, document: Callable[[], dict[str, Any]]):
        self._plane = plane
        self._document = document
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            module = await asyncio.to_thread(importlib.import_module, APP)
            self._app = self._app or module.build_pages(self._plane, self._document)
        await self._app(scope, receive, send)


PAGES: Routes = {
    **service_pages.API_ROUTES,
    **access_pages.AUDIT_ROUTES,
    **overview_pages.CLOUD_ROUTES,
    **overview_pages.CREATES_ROUTES,
    **webhook_pages.ENDPOINT_ROUTES,
    **catalogue_pages.IMAGE_ROUTES,
    **instance_pages.INSTANCE_ROUTES,
    **instance_pages.LIST_ROUTES,
    **service_pages.JOB_ROUTES,
    **access_pages.KEY_ROUTES,
    **session_pages.ROUTES,
    **money_pages.ROUTES,
    **catalogue_pages.OFFER_ROUTES,
    **service_pages.ORPHAN_ROUTES,
    **overview_pages.OVERVIEW_ROUTES,
    **launch_pages.ROUTES,
    **access_pages.SECRET_ROUTES,
    **service_pages.SETTINGS_ROUTES,
    **page_rendering.STATIC_ROUTES,
    **catalogue_pages.VOLUME_ROUTES,
    **webhook_pages.DELIVERY_ROUTES,
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
            GpuherdError: page_rendering.domain_error,
            HTTPException: page_rendering.framework_error,
            Exception: page_rendering.unexpected,
        },
    )
    app.router.redirect_slashes = False
    app.state.plane = plane
    app.state.document = document
    app.state.login_limiter = LoginRateLimiter(plane.clock)
    app.state.summaries = overview_pages.summary_cache(plane.clock)
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
            request.state.event_position = await plane_of(request).services.stores.events.newest()
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
