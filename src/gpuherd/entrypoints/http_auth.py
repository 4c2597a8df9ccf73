"""Who calls: key or session, scopes, rate limit, and whether a long reply may go on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import (
    ASGIApp,
    Receive,
    Send,
)
from starlette.types import (
    Scope as AsgiScope,
)

from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.entrypoints.problem_response import Forbidden, TooManyRequests, Unauthorized
from gpuherd.entrypoints.session_cookie import cookie_of, redirect_to_login, wants_html
from gpuherd.entrypoints.use_case_access import current_request, plane_of
from gpuherd.usecases.access.manage_keys import ApiKeyCache
from gpuherd.usecases.access.sign_in import Session, Sessions

OPEN = None
READ, WRITE, ADMIN = Scope.READ, Scope.WRITE, Scope.ADMIN


# Method and path, as they are declared.
RouteKey = tuple[str, str]


ROUTE_SCOPES: dict[RouteKey, Scope | None] = {
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/health"): OPEN,
    ("GET", "/metrics"): READ,
    ("POST", "/api/instances"): WRITE,
    ("GET", "/api/instances"): READ,
    ("GET", "/api/instances/comprehensive"): READ,
    ("GET", "/api/instances/{id_or_name}"): READ,
    ("GET", "/api/instances/{id_or_name}/events"): READ,
    ("GET", "/api/instances/{id_or_name}/attempts"): READ,
    ("GET", "/api/instances/{id_or_name}/logs"): READ,
    ("POST", "/api/instances/start"): WRITE,
    ("POST", "/api/instances/stop"): WRITE,
    ("POST", "/api/instances/delete"): WRITE,
    ("POST", "/api/instances/{id_or_name}/start"): WRITE,
    ("POST", "/api/instances/{id_or_name}/restart"): WRITE,
    ("POST", "/api/instances/{id_or_name}/replace"): WRITE,
    ("POST", "/api/instances/{id_or_name}/stop"): WRITE,
    ("POST", "/api/instances/{id_or_name}/lease"): WRITE,
    ("DELETE", "/api/instances/{id_or_name}/lease"): WRITE,
    ("POST", "/api/instances/{id_or_name}/heartbeat"): WRITE,
    ("DELETE", "/api/instances/{id_or_name}"): WRITE,
    ("GET", "/api/events"): READ,
    ("GET", "/api/events/history"): READ,
    ("GET", "/api/operations/{operation_id}"): READ,
    ("GET", "/api/jobs"): READ,
    ("GET", "/api/jobs/stats"): READ,
    ("GET", "/api/jobs/{job_id}"): READ,
    ("POST", "/api/jobs/{job_id}/retry"): WRITE,
    # It asks with a body, but changes nothing; what the key may not do, the plan says.
    ("POST", "/api/plans"): READ,
    ("GET", "/api/plans/{plan_id}"): READ,
    ("GET", "/api/products"): READ,
    ("GET", "/api/templates"): READ,
    ("GET", "/api/templates/{template_id}"): READ,
    ("GET", "/api/regions"): READ,
    ("GET", "/api/cache/stats"): READ,
    ("POST", "/api/cache/clear"): ADMIN,
    ("POST", "/api/cache/cleanup"): ADMIN,
    ("GET", "/api/cloud"): READ,
    ("POST", "/api/cloud/confirm-account"): ADMIN,
    ("POST", "/api/cloud/confirm-loss"): ADMIN,
    ("GET", "/api/creates"): READ,
    ("POST", "/api/creates/resume"): ADMIN,
    ("POST", "/api/sync"): WRITE,
    # Orphans belong to nobody, and may be anybody's: not even their names are for everybody.
    ("GET", "/api/orphans"): ADMIN,
    ("GET", "/api/orphans/{cloud_id}"): ADMIN,
    ("POST", "/api/orphans/resume"): ADMIN,
    ("POST", "/api/orphans/{cloud_id}/adopt"): ADMIN,
    ("POST", "/api/orphans/{cloud_id}/stop"): ADMIN,
    ("POST", "/api/orphans/{cloud_id}/delete"): ADMIN,
    # An endpoint hears of everybody's instances.
    ("GET", "/api/webhooks/endpoints"): ADMIN,
    ("POST", "/api/webhooks/endpoints"): ADMIN,
    ("GET", "/api/webhooks/endpoints/{endpoint_id}"): ADMIN,
    ("DELETE", "/api/webhooks/endpoints/{endpoint_id}"): ADMIN,
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/rotate"): ADMIN,
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/enable"): ADMIN,
    ("GET", "/api/webhooks/deliveries"): READ,
    ("GET", "/api/webhooks/deliveries/{delivery_id}"): READ,
    ("POST", "/api/webhooks/deliveries/{delivery_id}/replay"): WRITE,
    ("POST", "/api/webhooks/replay"): ADMIN,
    ("POST", "/api/webhooks/test"): WRITE,
    ("POST", "/api/keys"): ADMIN,
    ("GET", "/api/keys"): ADMIN,
    # Every key may know what it may.
    ("GET", "/api/keys/self"): READ,
    ("GET", "/api/keys/{key_id}"): ADMIN,
    ("DELETE", "/api/keys/{key_id}"): ADMIN,
    ("GET", "/api/keys/{key_id}/webhook-secret"): WRITE,
    ("POST", "/api/keys/{key_id}/webhook-secret/rotate"): WRITE,
    # Each key has its own; only an admin changes what all may use.
    ("GET", "/api/secrets"): READ,
    ("GET", "/api/secrets/{name}"): READ,
    ("POST", "/api/secrets/rotate"): ADMIN,
    ("PUT", "/api/secrets/{name}"): WRITE,
    ("DELETE", "/api/secrets/{name}"): WRITE,
    ("GET", "/api/audit"): ADMIN,
    # Of a key that is not admin they tell what that key pays for.
    ("GET", "/api/costs"): READ,
    ("GET", "/api/leftovers"): READ,
    # The bill and the balance are the whole account's.
    ("GET", "/api/costs/bill"): ADMIN,
    ("POST", "/api/costs/reconcile"): ADMIN,
    ("GET", "/api/balance"): ADMIN,
    ("GET", "/api/volumes"): READ,
    ("POST", "/api/volumes"): WRITE,
    ("DELETE", "/api/volumes/{volume_id}"): WRITE,
    ("GET", "/api/prewarms"): READ,
    ("POST", "/api/prewarms"): WRITE,
    ("DELETE", "/api/prewarms/{prewarm_id}"): WRITE,
    # Every key rents with these, so only an admin changes them.
    ("GET", "/api/registry-auths"): READ,
    ("GET", "/api/budgets"): ADMIN,
    ("POST", "/api/budgets"): ADMIN,
    ("GET", "/api/budgets/{id_or_name}"): ADMIN,
    ("PATCH", "/api/budgets/{id_or_name}"): ADMIN,
    ("DELETE", "/api/budgets/{id_or_name}"): ADMIN,
}


# These keep the claim of an `Idempotency-Key` in the transaction that accepts them; for all others that write
# something, the middleware keeps it.
NATIVE_CLAIMS = frozenset(
    {
        ("POST", "/api/instances"),
        ("POST", "/api/instances/start"),
        ("POST", "/api/instances/stop"),
        ("POST", "/api/instances/delete"),
        ("POST", "/api/instances/{id_or_name}/start"),
        ("POST", "/api/instances/{id_or_name}/restart"),
        ("POST", "/api/instances/{id_or_name}/replace"),
        ("POST", "/api/instances/{id_or_name}/stop"),
        ("DELETE", "/api/instances/{id_or_name}"),
    }
)


# The dashboard: what a session may open, by the key that it stands for.
PAGE_SCOPES: dict[RouteKey, Scope | None] = {
    ("GET", "/login"): OPEN,
    ("POST", "/login"): OPEN,
    ("GET", "/static/{digest}/{name}"): OPEN,
    ("GET", "/docs"): OPEN,
    ("POST", "/logout"): READ,
    ("GET", "/"): READ,
    ("GET", "/instances"): READ,
    ("GET", "/instances/new"): WRITE,
    ("POST", "/instances/new"): WRITE,
    ("POST", "/instances/plan"): WRITE,
    ("GET", "/instances/{instance_id}"): READ,
    ("GET", "/instances/{instance_id}/log"): READ,
    ("POST", "/instances/{instance_id}/start"): WRITE,
    ("POST", "/instances/{instance_id}/restart"): WRITE,
    ("POST", "/instances/{instance_id}/replace"): WRITE,
    ("POST", "/instances/{instance_id}/lease"): WRITE,
    ("POST", "/instances/{instance_id}/keep"): WRITE,
    ("POST", "/instances/{instance_id}/stop"): WRITE,
    ("POST", "/instances/{instance_id}/delete"): WRITE,
    ("GET", "/offers"): READ,
    ("GET", "/images"): READ,
    ("GET", "/volumes"): READ,
    ("POST", "/volumes"): WRITE,
    ("POST", "/volumes/{volume_id}/delete"): WRITE,
    ("GET", "/secrets"): READ,
    ("POST", "/secrets"): WRITE,
    ("POST", "/secrets/{name}/remove"): WRITE,
    ("GET", "/money"): READ,
    ("GET", "/jobs"): READ,
    ("POST", "/jobs/{job_id}/retry"): WRITE,
    ("GET", "/webhooks"): READ,
    ("POST", "/webhooks/replay"): ADMIN,
    ("GET", "/webhooks/{delivery_id}"): READ,
    ("POST", "/webhooks/{delivery_id}/replay"): WRITE,
    ("GET", "/endpoints"): ADMIN,
    ("POST", "/endpoints"): ADMIN,
    ("POST", "/endpoints/{endpoint_id}/enable"): ADMIN,
    ("POST", "/endpoints/{endpoint_id}/test"): ADMIN,
    ("POST", "/endpoints/{endpoint_id}/rotate"): ADMIN,
    ("POST", "/endpoints/{endpoint_id}/remove"): ADMIN,
    ("GET", "/orphans"): ADMIN,
    ("POST", "/orphans/resume"): ADMIN,
    ("POST", "/orphans/{cloud_id}/adopt"): ADMIN,
    ("POST", "/orphans/{cloud_id}/stop"): ADMIN,
    ("POST", "/orphans/{cloud_id}/delete"): ADMIN,
    ("GET", "/keys"): ADMIN,
    ("POST", "/keys"): ADMIN,
    ("POST", "/keys/{key_id}/revoke"): ADMIN,
    ("POST", "/keys/{key_id}/rotate"): ADMIN,
    ("POST", "/cloud/confirm-account"): ADMIN,
    ("POST", "/cloud/confirm-loss"): ADMIN,
    ("POST", "/creates/resume"): ADMIN,
    ("GET", "/settings"): ADMIN,
    ("GET", "/audit"): ADMIN,
}


# By the first part of their path.
_PAGE_ROOTS = frozenset(path.split("/")[1] for _, path in PAGE_SCOPES)


STATIC_PREFIX = "/static/"


# The one route of the API that a session may read: browsers cannot send a header with an event stream.
SESSION_STREAM = "/api/events"


# What the framework answers by itself.
FRAMEWORK_PATHS = frozenset({"/openapi.json"})


PUBLIC_PATHS = FRAMEWORK_PATHS | {path for (_, path), scope in ROUTE_SCOPES.items() if scope is OPEN}
_NON_PAGE_PATHS = PUBLIC_PATHS | {path for _, path in ROUTE_SCOPES if not path.startswith("/api/")}
SCHEME = "apiKey"


class UndeclaredRoute(Exception):
    """A route of which nobody has said who may use it, or the other way round."""


class RouteTable:
    """Tells which declared route answers a request: the one that the framework will find.

    It compares in the framework's order and with its patterns, so that nothing can be answered by another
    route than the one that was checked.
    """

    def __init__(self, routers: Iterable[APIRouter]):
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        found = {(method, route.path) for route in routes for method in route.methods or ()}
        if found != set(ROUTE_SCOPES):
            raise UndeclaredRoute(
                f"routes and their declarations differ: {sorted(found ^ set(ROUTE_SCOPES))}"
            )
        self._patterns: dict[str, list[tuple[re.Pattern[str], RouteKey]]] = {}
        for route in routes:
            for method in route.methods or ():
                pattern = (route.path_regex, (method, route.path))
                self._patterns.setdefault(method, []).append(pattern)

    def find(self, method: str, path: str) -> RouteKey | None:
        """Return method and path of a route as they are declared, None if there is none."""
        if "{" not in path and (method, path) in ROUTE_SCOPES:
            return method, path
        for pattern, key in self._patterns.get(method, ()):
            if pattern.match(path):
                return key
        return None

    def methods(self, path: str) -> set[str]:
        """Return the methods that a path has; the framework would tell those of its first route only."""
        return {method for method in self._patterns if self.find(method, path)}


def is_page(path: str, wants_html: bool) -> bool:
    """Return True if a path is the dashboard's to answer: its own, and for browsers whatever is nobody's."""
    if path.startswith("/api/") or path in _NON_PAGE_PATHS:
        return False
    return wants_html or path.lstrip("/").split("/", 1)[0] in _PAGE_ROOTS


def is_public_page(method: str, path: str) -> bool:
    """Return True if a page is for everybody."""
    method = "GET" if method == "HEAD" else method
    if path.startswith(STATIC_PREFIX):
        return method == "GET"
    return PAGE_SCOPES.get((method, path), READ) is OPEN


def require_scope(request: Request, needed: Scope) -> None:
    """Refuse a caller whose key may less than this."""
    check_scope(caller_of(request), needed)


def check_scope(caller: Caller, needed: Scope) -> None:
    """Refuse a caller whose key may less than this."""
    if not caller.scope.includes(needed):
        raise Forbidden(
            f"this needs a key with the scope {needed.value}; yours has {caller.scope.value}",
            details={"needed": needed.value, "scope": caller.scope.value},
        )


def caller_of(request: Request) -> Caller:
    """Return the authenticated caller."""
    caller = request.scope["caller"]
    assert isinstance(caller, Caller)
    return caller


def acting_caller(request: Request) -> Caller:
    """Return the caller together with the ids of the request, for audit records and logs."""
    it, ids = caller_of(request), current_request.get()
    return Caller(it.key_id, it.scope, it.limits, ids.request_id, ids.correlation_id)


def with_security(document: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document with what each route needs."""
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes[SCHEME] = {
        "type": "http",
        "scheme": "bearer",
        "description": "`Authorization: Bearer ghk_…`; admin includes write, write includes read.",
    }
    for (method, path), scope in ROUTE_SCOPES.items():
        operation = document["paths"][path][method.lower()]
        operation["security"] = [] if scope is OPEN else [{SCHEME: [scope.value]}]
    return document


SESSION_INTERVAL = timedelta(minutes=1)


def may_go_on(request: Request, session_interval: timedelta = SESSION_INTERVAL) -> Callable[[], bool]:
    """Return what tells, again and again, whether the key is still good, and the session if there is one.

    A session may be signed out of in the very moment in which its reply begins, so it is looked at again
    after `session_interval`: whoever reads comes back.
    """
    plane, key_id = plane_of(request), caller_of(request).key_id
    session: Session | None = request.scope.get("session")
    until = None if session is None else min(session.expires_at, plane.clock.now() + session_interval)

    def may_read() -> bool:
        is_over = until is not None and plane.clock.now() >= until
        return not is_over and plane.services.key_cache.caller_by_key_id(key_id) is not None

    return may_read


# Open to everybody, and open-hearted to those who send a key; a key that is none changes nothing.
KEY_TELLS_MORE = "/health"


# By the usual names of a parameter for it, or by its look.
_KEY_IN_QUERY = re.compile(rb"(?:^|&)(?:api_?key|access_token|token|key)=|=ghk_", re.IGNORECASE)


class AuthenticationMiddleware:
    """Authenticates by key or session, except on the few public paths, and stores the caller in the scope.

    A session opens the pages, and of the API the stream of events alone.
    """

    def __init__(self, app: ASGIApp, key_cache: ApiKeyCache, pages: ASGIApp, sessions: Sessions):
        self._app = app
        self._key_cache = key_cache
        self._pages = pages
        self._sessions = sessions

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PUBLIC_PATHS:
            # Most requests by far are for the API, and need no look at what else they say.
            if not scope["path"].startswith("/api/") and is_page(scope["path"], wants_html(scope)):
                await self._page(scope, receive, send)
                return
            caller = scope["caller"] = self._caller(scope) or await self._session_caller(scope)
            if caller.limits.requests_per_minute is not None:
                await self._check_rate_limit(caller)
        elif scope["type"] == "http" and scope["path"] == KEY_TELLS_MORE:
            with suppress(Unauthorized):
                scope["caller"] = self._caller(scope)
        await self._app(scope, receive, send)

    async def _page(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        is_open = is_public_page(scope["method"], scope["path"])
        try:
            caller = (
                None if scope["path"].startswith(STATIC_PREFIX) else await self._authenticate_session(scope)
            )
            if caller is not None and not is_open:
                await self._check_rate_limit(caller)
        except (StoreUnavailable, TooManyRequests) as error:
            # Told by the page itself, so that it looks like one. What is for everybody stays so.
            scope["refusal"] = None if is_open else error
        else:
            if caller is None and not is_open:
                if not wants_html(scope):
                    raise Unauthorized("this page needs a session; sign in at /login with a browser")
                await redirect_to_login(scope)(scope, receive, send)
                return
        await self._pages(scope, receive, send)

    async def _authenticate_session(self, scope: AsgiScope) -> Caller | None:
        """Return who brings a session, if that and the key behind it are still good, and write both down."""
        session = await self._sessions.read(cookie_of(scope))
        caller = None if session is None else self._key_cache.caller_by_key_id(session.key_id)
        if caller is not None:
            scope["session"], scope["caller"] = session, caller
        return caller

    async def _session_caller(self, scope: AsgiScope) -> Caller:
        """Return who listens with a session."""
        caller = await self._authenticate_session(scope)
        if caller is None:
            raise _missing_key()
        return caller

    def _caller(self, scope: AsgiScope) -> Caller | None:
        """Return whose key it is; None if it takes a look at the session first."""
        if scope["query_string"] and _KEY_IN_QUERY.search(scope["query_string"]):
            raise Unauthorized(
                "a key does not belong into an address, which others write into their logs; "
                "send it as a header, and revoke this one"
            )
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        # Of two, who knows which one the proxy before us has looked at?
        scheme, _, key = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
        caller = self._key_cache.authenticate(key.strip())
        if not sent and scope["path"] == SESSION_STREAM and scope["method"] == "GET":
            return None
        if caller is None or scheme.lower() != b"bearer":
            raise _missing_key()
        return caller

    async def _check_rate_limit(self, caller: Caller) -> None:
        if wait_s := self._key_cache.wait_s(caller):
            raise TooManyRequests(
                f"this key may make {caller.limits.requests_per_minute} requests a minute", wait_s
            )


def _missing_key() -> Unauthorized:
    return Unauthorized("send the header 'Authorization: Bearer <key>' with a key that this server knows")


class AuthorizationMiddleware:
    """Runs behind authentication. It is the only place that compares scopes with those of `ROUTE_SCOPES`.

    What is inside finds the route in the scope: None if there is none, and the framework says so.
    """

    def __init__(self, app: ASGIApp, routes: RouteTable):
        self._app = app
        self._routes = routes

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            key = scope["declared_route"] = self._routes.find(scope["method"], scope["path"])
            needed = None if key is None else ROUTE_SCOPES[key]
            if needed is not None:
                check_scope(scope["caller"], needed)
        await self._app(scope, receive, send)


def declared_route(scope: AsgiScope) -> RouteKey | None:
    """Return which route of the table a request is for."""
    found: RouteKey | None = scope["declared_route"]
    return found


async def append_audit_record(
    request: Request, action: str, target: str, *, before: str = "", after: str = ""
) -> None:
    """Append the record; if that fails, the action is not done."""
    audit_trail = plane_of(request).services.audit_trail
    await audit_trail.append(acting_caller(request), action, target, before=before, after=after)
