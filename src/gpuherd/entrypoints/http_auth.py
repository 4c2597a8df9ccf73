"""Who calls: key or session, scopes, rate limit, and whether a long reply may go on."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

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
from gpuherd.entrypoints.route_scopes import (
    PUBLIC_PATHS,
    ROUTE_SCOPES,
    SESSION_STREAM,
    STATIC_PREFIX,
    RouteKey,
    RouteTable,
    is_page,
    is_public_page,
)
from gpuherd.entrypoints.session_cookie import cookie_of, redirect_to_login, wants_html
from gpuherd.entrypoints.use_case_access import current_request, plane_of
from gpuherd.usecases.access.manage_keys import ApiKeyCache
from gpuherd.usecases.access.sign_in import Session, Sessions


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


SESSION_INTERVAL = timedelta(minutes=1)


def may_go_on(request: Request, session_interval: timedelta = SESSION_INTERVAL) -> Callable[[], bool]:
    """Return a function that checks if the key, and the session if there is one, may still read.

    A user may sign out at the moment when a reply begins. So a reply to a session ends after
    `session_interval`, and its reader connects again.
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
