"""Sign in and out."""

from __future__ import annotations

from collections import OrderedDict

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.http_auth import acting_caller, append_audit_record, caller_of
from gpuherd.entrypoints.problem_response import TooManyRequests
from gpuherd.entrypoints.session_cookie import (
    COOKIE,
    SECURE_COOKIE,
    safe_target,
    single_header,
)
from gpuherd.entrypoints.use_case_access import plane_of
from gpuherd.entrypoints.web.page_forms import form_of
from gpuherd.entrypoints.web.page_rendering import Routes, page
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.token_bucket import TokenBucket
from gpuherd.usecases.access.sign_in import SESSION_LIFETIME

# Wrong keys that an address may try at once, and how long it then waits for the next.
WRONG_KEYS_BURST, WRONG_KEY_REFILL_S = 10, 6.0


ADDRESSES_MAX = 1000
WRONG_KEY_MESSAGE = "This key does not open anything here. It may be mistyped, revoked or expired."


class LoginRateLimiter:
    """Counts the wrong keys of each address; right ones cost nothing: a proxy may stand for many people."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def check(self, address: str) -> None:
        """Refuse an address that has tried too many."""
        bucket = self._buckets.get(address)
        if bucket is not None and (wait_s := bucket.wait_s(self._clock.monotonic())) > 0:
            raise TooManyRequests("too many wrong keys from your address; wait a moment", wait_s)

    def record_wrong_key(self, address: str) -> None:
        """Take note of a wrong key."""
        now_s = self._clock.monotonic()
        bucket = self._buckets.pop(address, None) or TokenBucket(
            1 / WRONG_KEY_REFILL_S, WRONG_KEYS_BURST, now_s
        )
        self._buckets[address] = bucket
        bucket.take(now_s)
        if len(self._buckets) > ADDRESSES_MAX:
            self._buckets.popitem(last=False)


async def show(request: Request) -> Response:
    """Ask for a key, unless there is a session already."""
    target = safe_target(request.query_params.get("next", "/"))
    if request.scope.get("session"):
        return Response(status_code=303, headers={"Location": target})
    return page(request, "login.html", target=target, problem="")


async def sign_in(request: Request) -> Response:
    """Open a session for the holder of a key."""
    form, plane = form_of(request), plane_of(request)
    limiter: LoginRateLimiter = request.app.state.login_limiter
    address = request.client.host if request.client else ""
    limiter.check(address)
    target = safe_target(form.text("next"))
    caller = plane.services.key_cache.authenticate(form.text("api_key").encode("utf-8", "replace"))
    if caller is None:
        limiter.record_wrong_key(address)
        return page(request, "login.html", status=401, target=target, problem=WRONG_KEY_MESSAGE)
    request.scope["caller"] = caller
    await append_audit_record(request, "session.open", caller.key_id)
    reply = Response(status_code=303, headers={"Location": target})
    _set_cookie(
        reply, plane.services.sessions.open(caller.key_id), int(SESSION_LIFETIME.total_seconds()), request
    )
    return reply


async def sign_out(request: Request) -> Response:
    """End the session."""
    plane = plane_of(request)
    audit_record = acting_caller(request).audit_record(
        "session.end", caller_of(request).key_id, plane.clock.now()
    )
    await plane.services.sessions.end(request.scope["session"], audit_record)
    reply = Response(status_code=303, headers={"Location": "/login"})
    _set_cookie(reply, "", 0, request)
    return reply


def _set_cookie(reply: Response, token: str, max_age_s: int, request: Request) -> None:
    # Behind a proxy we speak plain HTTP; the browser itself says whether it speaks TLS.
    is_secure = request.url.scheme == "https" or single_header(request.scope, b"origin").startswith(
        b"https://"
    )
    reply.set_cookie(
        SECURE_COOKIE if is_secure else COOKIE,
        token,
        max_age=max_age_s,
        path="/",
        httponly=True,
        samesite="strict",
        secure=is_secure,
    )


ROUTES: Routes = {
    ("GET", "/login"): show,
    ("POST", "/login"): sign_in,
    ("POST", "/logout"): sign_out,
}
