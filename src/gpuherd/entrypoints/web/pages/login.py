"""`/login` and `/logout`: a key opens a session, and nobody may try keys for long."""

from __future__ import annotations

from collections import OrderedDict

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.clock import Clock
from gpuherd.entrypoints.http.access import acting, caller_of
from gpuherd.entrypoints.http.problems import TooManyRequests
from gpuherd.entrypoints.http.replies import plane_of
from gpuherd.entrypoints.web.doorway import COOKIE, SECURE_COOKIE, header, safe_target
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.sessions import LIFETIME
from gpuherd.resilience.token_bucket import TokenBucket

# Wrong keys that an address may try at once, and how long it then waits for the next.
TRIES, TRY_AGAIN_S = 10, 6.0
ADDRESSES_MAX = 1000
WRONG = "This key does not open anything here. It may be mistyped, revoked or expired."


class LoginGate:
    """Counts the wrong keys of each address; right ones cost nothing: a proxy may stand for many people."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def check(self, address: str) -> None:
        """Refuse an address that has tried too many."""
        bucket = self._buckets.get(address)
        if bucket is not None and (wait_s := bucket.wait_s(self._clock.monotonic())) > 0:
            raise TooManyRequests("too many wrong keys from your address; wait a moment", wait_s)

    def wrong(self, address: str) -> None:
        """Take note of a wrong key."""
        now_s = self._clock.monotonic()
        bucket = self._buckets.pop(address, None) or TokenBucket(1 / TRY_AGAIN_S, TRIES, now_s)
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
    """Open a session for whoever has a key."""
    form, plane = form_of(request), plane_of(request)
    gate: LoginGate = request.app.state.login_gate
    address = request.client.host if request.client else ""
    gate.check(address)
    target = safe_target(form.text("next"))
    caller = plane.keys.registry.caller_with(form.text("api_key").encode("utf-8", "replace"))
    if caller is None:
        gate.wrong(address)
        return page(request, "login.html", status=401, target=target, problem=WRONG)
    request.scope["caller"] = caller
    deed = acting(request).does("session.open", caller.key_id, plane.clock.now())
    await plane.keys.audit.append(deed)
    reply = Response(status_code=303, headers={"Location": target})
    _set_cookie(reply, plane.keys.sessions.open(caller.key_id), int(LIFETIME.total_seconds()), request)
    return reply


async def sign_out(request: Request) -> Response:
    """End the session."""
    plane = plane_of(request)
    deed = acting(request).does("session.end", caller_of(request).key_id, plane.clock.now())
    await plane.keys.sessions.end(request.scope["session"], deed)
    reply = Response(status_code=303, headers={"Location": "/login"})
    _set_cookie(reply, "", 0, request)
    return reply


def _set_cookie(reply: Response, token: str, max_age_s: int, request: Request) -> None:
    # Behind a proxy we speak plain HTTP; the browser itself says whether it speaks TLS.
    is_secure = request.url.scheme == "https" or header(request.scope, b"origin").startswith(b"https://")
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
